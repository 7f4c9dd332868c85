/* templates: much for a compiler to do. Recursive templates, tuples of DEPTH members, variants, a regular expression,
 * and what they print is known when it is compiled. */
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#ifndef DEPTH
#define DEPTH 60
#endif

template <int N> struct number {
  static constexpr int value = N;
  long sum() const { return N; }
};

template <int N> struct fibonacci {
  static constexpr unsigned long long value = fibonacci<N - 1>::value + fibonacci<N - 2>::value;
};
template <> struct fibonacci<0> { static constexpr unsigned long long value = 0; };
template <> struct fibonacci<1> { static constexpr unsigned long long value = 1; };

template <int... N> auto all_of(std::integer_sequence<int, N...>) { return std::make_tuple(number<N>{}...); }

template <int... N> long sums(std::integer_sequence<int, N...>) {
  std::map<std::string, std::function<long()>> table;
  (table.emplace("n" + std::to_string(N), [n = number<N>{}, v = std::vector<number<N>>(3)] {
    return n.sum() + std::accumulate(v.begin(), v.end(), 0L, [](long s, const auto &x) { return s + x.sum(); });
  }), ...);
  long total = 0;
  for (const auto &[name, call] : table) total += call() + static_cast<long>(name.size());
  return total;
}

template <typename... T> std::string names(const std::variant<T...> &v) {
  return std::visit([](const auto &x) { return std::to_string(x.sum()); }, v);
}

int main() {
  using all = std::make_integer_sequence<int, DEPTH>;
  auto tuple = all_of(all{});
  long total = std::apply([](const auto &...x) { return (x.sum() + ...); }, tuple);
  std::variant<number<1>, number<2>, number<3>, number<5>, number<8>> v = number<5>{};
  std::regex words("([a-z]+)([0-9]*)");
  std::string text = "one1 two22 three333";
  std::cout << total << ' ' << sums(all{}) << ' ' << fibonacci<DEPTH>::value << ' ' << names(v) << ' '
            << std::distance(std::sregex_iterator(text.begin(), text.end(), words), std::sregex_iterator()) << '\n';
  return 9;
}
