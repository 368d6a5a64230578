// What recording costs.
//
//   BM_OnEvent           one event through the sink's virtual call into the shared ring, with the
//   writer
//                        thread draining it: the price on the program's thread. Budget: 15 ns
//   BM_OnEventFullRing   the same while the disk is full: the price of dropping and counting
//   BM_EncodeChunk       the writer thread's work per event, for events like those of training
//   BM_DecodeChunk       the reader's
//
// Counters: bytes_per_event is the size on disk of what BM_EncodeChunk makes. Budget: 4. Set
// OFFCUT_BENCH_EVENTS to a file of raw 32-byte events to measure real ones.

#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "allocator/base/check.h"
#include "allocator/base/clock.h"
#include "allocator/trace/chunk.h"
#include "allocator/trace/recorder.h"
#include "allocator/trace/ring.h"

namespace offcut {
namespace {

std::string MakeDirectory() {
  std::string path = std::filesystem::temp_directory_path().string() + "/offcut-bench-XXXXXX";
  OFFCUT_CHECK(mkdtemp(path.data()) != nullptr, path);
  return path;
}

constexpr Event kEvent = {.time_ns = 1,
                          .address = 0x7F0000000000,
                          .bytes = 4096,
                          .extra = 8,
                          .pool = 1,
                          .kind = EventKind::kBlockAllocated};

void BM_OnEvent(benchmark::State& state) {
  const std::string directory = MakeDirectory();
  uint64_t dropped = 0;
  {
    auto recorder = Recorder::Start(directory, "{}", Clock::Real());
    OFFCUT_CHECK(recorder.ok(), recorder.status().message());
    auto sink = (*recorder)->SinkFor(0, "bench", 0);
    OFFCUT_CHECK(sink.ok(), sink.status().message());
    // In bursts of an eighth of the ring, drained in between, so that nothing is dropped.
    constexpr int kBurst = 1 << 15;
    for (auto _ : state) {
      for (int i = 0; i < kBurst; ++i) (*sink)->OnEvent(kEvent);
      state.PauseTiming();
      (*recorder)->Flush();
      state.ResumeTiming();
    }
    state.SetItemsProcessed(state.iterations() * kBurst);
    const std::string file = (*recorder)->directory() + "/device0.ring";
    std::ifstream ring(file, std::ios::binary);
    ring.seekg(offsetof(RingHeader, dropped_events));
    ring.read(reinterpret_cast<char*>(&dropped), sizeof(dropped));
  }
  state.counters["dropped"] = static_cast<double>(dropped);
  std::filesystem::remove_all(directory);
}
BENCHMARK(BM_OnEvent);

void BM_OnEventFullRing(benchmark::State& state) {
  const std::string directory = MakeDirectory();
  auto ring = Ring::Create(directory + "/device0.ring", "", 1 << 10);
  OFFCUT_CHECK(ring.ok(), ring.status().message());
  for (auto _ : state) (*ring)->Push(kEvent);
  state.SetItemsProcessed(state.iterations());
  std::filesystem::remove_all(directory);
}
BENCHMARK(BM_OnEventFullRing);

// Steps of a training run: what a step allocates it frees, the sizes recur, the times do not.
std::vector<Event> TrainingEvents(size_t count) {
  std::mt19937_64 random(1);
  std::vector<Event> step;
  for (int i = 0; i < 2000; ++i) {
    const Bytes bytes = (1 + random() % 4096) * 1024;
    step.push_back({.address = 0x7F0000000000 + random() % 30000 * 2 * kMiB,
                    .bytes = bytes,
                    .extra = static_cast<uint32_t>(bytes / kBlockAlignment),
                    .pool = 0,
                    .kind = EventKind::kBlockAllocated});
  }
  std::vector<Event> events;
  for (uint64_t now_ns = 0; events.size() < count;) {
    for (const EventKind kind : {EventKind::kBlockAllocated, EventKind::kBlockFreed}) {
      for (Event event : step) {
        event.time_ns = now_ns += 200 + random() % 10000;
        event.kind = kind;
        events.push_back(event);
      }
      std::reverse(step.begin(), step.end());
    }
  }
  events.resize(count);
  return events;
}

std::vector<Event> BenchEvents() {
  const char* const path = getenv("OFFCUT_BENCH_EVENTS");
  if (path == nullptr) return TrainingEvents(4 * kMaxChunkEvents);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::vector<Event> events(bytes.size() / sizeof(Event));
  OFFCUT_CHECK(!events.empty(), path);
  std::memcpy(events.data(), bytes.data(), events.size() * sizeof(Event));
  return events;
}

std::vector<std::string> EncodeAll(ChunkEncoder& encoder, const std::vector<Event>& events) {
  std::vector<std::string> chunks;
  for (size_t i = 0; i < events.size(); i += kMaxChunkEvents) {
    OFFCUT_CHECK(encoder
                     .Encode(absl::MakeConstSpan(events).subspan(i, kMaxChunkEvents),
                             {.first_index = i}, &chunks.emplace_back())
                     .ok(),
                 "");
  }
  return chunks;
}

void BM_EncodeChunk(benchmark::State& state) {
  const std::vector<Event> events = BenchEvents();
  ChunkEncoder encoder(static_cast<int>(state.range(0)));
  size_t bytes = 0;
  for (auto _ : state) {
    bytes = 0;
    for (const std::string& chunk : EncodeAll(encoder, events)) bytes += chunk.size();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(events.size()));
  state.counters["bytes_per_event"] =
      static_cast<double>(bytes) / static_cast<double>(events.size());
}
BENCHMARK(BM_EncodeChunk)->ArgName("level")->Arg(1)->Arg(3)->Arg(9)->Unit(benchmark::kMillisecond);

void BM_DecodeChunk(benchmark::State& state) {
  const std::vector<Event> events = BenchEvents();
  ChunkEncoder encoder(3);
  const std::vector<std::string> chunks = EncodeAll(encoder, events);
  ChunkDecoder decoder;
  std::vector<Event> back;
  for (auto _ : state) {
    for (const std::string& chunk : chunks) {
      ChunkHeader header;
      std::memcpy(&header, chunk.data(), sizeof(header));
      const auto payload =
          absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(chunk.data()), chunk.size())
              .subspan(sizeof(header));
      OFFCUT_CHECK(decoder.Decode(header, payload, 0, &back).ok(), "a chunk just made");
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(events.size()));
}
BENCHMARK(BM_DecodeChunk)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace offcut
