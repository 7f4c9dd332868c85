/* The C++ side of hazards/programs.c: a function's static, and a container that grows in it. */
#include <map>
#include <string>

static std::map<std::string, int> &counters() {
  static std::map<std::string, int> map{{"a name that is longer than a small string holds", 1}};
  return map;
}

extern "C" int cxx_count(const char *name) { return ++counters()[name]; }
