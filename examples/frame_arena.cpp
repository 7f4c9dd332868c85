// A game's frame: what it computes is thrown away as a whole before the next one. reset gives up all of it at once, so
// nothing need be freed one by one, and the next frame finds the same memory warm.
#include <cstdio>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include <tslab/epoch.hpp>

namespace {

struct Particle {
  float x, y, speed;
};

// Everything in a frame is built in `memory`. The draw list is never freed: reset does it.
std::size_t draw(std::pmr::memory_resource &memory, int frame) {
  std::pmr::vector<Particle> particles(&memory);
  for (int i = 0; i < 1000 + frame; i++) particles.push_back({float(i), float(frame), 1.0F});

  auto *visible = static_cast<const Particle **>(memory.allocate(particles.size() * sizeof(Particle *)));
  std::size_t count = 0;
  for (const Particle &particle : particles) {
    if (particle.x > 500) visible[count++] = &particle;
  }
  std::pmr::string title("a title that is too long for the string itself, frame ", &memory);
  title += std::to_string(frame).c_str();
  return count;
}

} // namespace

int main() {
  tslab::epoch frames("frame", TSLAB_EPOCH_DESTROYABLE);
  tslab::memory_resource memory(frames);
  std::size_t drawn = 0;
  std::uint64_t given_up = 0;
  for (int frame = 0; frame < 100; frame++) {
    drawn += draw(memory, frame); // its containers are gone here, before the reset: destructors must not run after
    tslab_epoch_report report;
    frames.reset(&report);
    given_up += report.live_blocks;
  }
  const tslab_epoch_status status = frames.info();
  std::printf("%zu particles drawn in %llu frames, %llu blocks given up, %llu live\n", drawn,
              static_cast<unsigned long long>(status.era), static_cast<unsigned long long>(given_up),
              static_cast<unsigned long long>(status.live_blocks));
  return given_up == 100 && status.live_blocks == 0 ? 0 : 1;
}
