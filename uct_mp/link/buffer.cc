#include "uct_mp/link/buffer.h"

#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace ucx_mp::link {

namespace {
constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;
constexpr std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
// Whole cache lines, an odd number: equal places of all buffers are spread over all sets of a cache.
constexpr std::size_t odd_lines(std::size_t n) { return round_up(n, 64) | 64; }
} // namespace

RegisteredChunks::Chunk* RegisteredChunks::add(const verbs::DeviceSet& devices, std::size_t bytes) {
    Chunk chunk;
    // Every message is in another buffer: without huge pages each costs a miss in the processor's page tables.
    const std::size_t page = bytes >= kHugePage / 2 ? kHugePage : kPage;
    chunk.bytes = round_up(bytes, page);
    chunk.memory = {static_cast<std::byte*>(std::aligned_alloc(page, chunk.bytes)), std::free};
    if (!chunk.memory) return nullptr;
    if (page == kHugePage) (void)madvise(chunk.memory.get(), chunk.bytes, MADV_HUGEPAGE);
    chunk.registration = std::make_unique<verbs::Registration>();
    if (failed(verbs::register_memory(devices, chunk.memory.get(), chunk.bytes, IBV_ACCESS_LOCAL_WRITE,
                                      *chunk.registration)))
        return nullptr;
    bytes_ += chunk.bytes;
    chunks_.push_back(std::move(chunk));
    return &chunks_.back();
}

// As many as memory allows. Where there is none, finding out costs
// a command to the adapter, and callers come again and again.
bool BufferPool::grow() {
    constexpr unsigned kLeast = 4, kMostPause = 4096;
    starved = true;
    if (made_ >= max_) return false;
    if (pausing_ != 0) return --pausing_, false;
    const std::size_t stride = odd_lines(sizeof(Buffer) + data_bytes_);
    // Starts small, then doubles: a rank with two peers need not pin as much as one with a thousand.
    const auto count = static_cast<unsigned>(std::min<std::size_t>(
        {max_ - made_, std::max(made_, 32u), std::max<std::size_t>(32, (std::size_t{4} << 20) / stride)}));
    for (unsigned wanted = count; wanted >= kLeast || wanted == count; wanted /= 2) {
        if (!grow_by(wanted)) continue;
        starved = false;
        pause_ = 0;
        return true;
    }
    pausing_ = pause_ = std::min(std::max(16u, 2 * pause_), kMostPause);
    return false;
}

bool BufferPool::grow_by(unsigned count) {
    const std::size_t stride = odd_lines(sizeof(Buffer) + data_bytes_);
    RegisteredChunks::Chunk* chunk = chunks_.add(*devices_, stride * count);
    if (!chunk) return false;
    for (unsigned i = count; i-- > 0;) {
        auto* buffer = new (chunk->memory.get() + i * stride) Buffer{};
        buffer->lkey = chunk->registration->lkey.data();
        buffer->pool = this;
        put(buffer);
    }
    made_ += count;
    return true;
}

ReceiveLayout ReceiveLayout::make(unsigned headroom, unsigned header_bytes, unsigned message_bytes,
                                  unsigned tag_bytes) {
    ReceiveLayout layout;
    // The message starts on a cache line, so that a small one is one line. The pointer
    // of its keeper lies before the headroom, which ends where the payload begins.
    const std::size_t before = std::max<std::size_t>(sizeof(void*) + headroom, header_bytes) - header_bytes + tag_bytes;
    layout.message_offset = static_cast<unsigned>(round_up(sizeof(ReceiveBuffer) + before, 64));
    layout.message_bytes = message_bytes;
    layout.tag_bytes = tag_bytes;
    layout.stride = static_cast<unsigned>(odd_lines(layout.message_offset + message_bytes));
    return layout;
}

} // namespace ucx_mp::link
