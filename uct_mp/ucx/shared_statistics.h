// Statistics of an interface for other threads: a copy that the worker's thread makes when somebody waits for it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "uct_mp/channel/interface.h"
#include "uct_mp/channel/statistics.h"

namespace ucx_mp::face {

class SharedStatistics {
public:
    // From any thread: a fresh copy. If update() is not called within some
    // milliseconds, the last one. Sets `attention`, which asks for update().
    [[nodiscard]] channel::Interface::Statistics get(std::atomic<bool>& attention);
    // From the worker's thread: makes the copy if somebody waits for it.
    void update(const channel::Interface& core);

private:
    std::mutex lock_;
    std::condition_variable made_;
    bool wanted_ = false;
    channel::Interface::Statistics copy_;
};

} // namespace ucx_mp::face
