#include "uct_mp/link/commands.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

namespace ucx_mp::link {

namespace {
constexpr Nanos kLook = 50'000;         // until it asks whether a command is over
constexpr Nanos kPatience = 20'000'000; // then progress does it
constexpr unsigned kInOneGo = 4;
} // namespace

struct Commands::Shared {
    std::mutex running; // held while one runs
    std::mutex lists;   // those below
    std::deque<Item> waiting, over;
    bool busy = false; // somebody works on them
    std::atomic<Nanos> others_until{0};
    const pid_t process = getpid();
};

Commands::Commands(Services& services) : services_(services), shared_(std::make_shared<Shared>()) {}

void Commands::add(Work work, Then then) {
    {
        const std::lock_guard lists(shared_->lists);
        shared_->waiting.push_back({.work = std::move(work), .then = std::move(then)});
    }
    start();
    if (!timer_) look_in(kLook);
}

void Commands::start() {
    {
        const std::lock_guard lists(shared_->lists);
        // In virtual time a command that has been done is not over yet.
        const bool still = !shared_->over.empty() && shared_->over.back().over > services_.now();
        if (shared_->busy || still || shared_->waiting.empty()) return;
        const Nanos now = services_.now();
        if (now < shared_->others_until.load(std::memory_order_relaxed)) {
            if (!refused_since_) refused_since_ = now; // else these might never be done, and give way for ever
            return;
        }
        shared_->busy = true;
    }
    const Nanos began = services_.now();
    const bool taken = services_.aside([&services = services_, shared = shared_] {
        for (unsigned done = 0;; ++done) {
            const std::lock_guard running(shared->running);
            const bool enough =
                done == kInOneGo || services.now() < shared->others_until.load(std::memory_order_relaxed);
            Item item;
            {
                const std::lock_guard lists(shared->lists);
                if (enough || shared->waiting.empty()) {
                    shared->busy = false;
                    return;
                }
                item = std::move(shared->waiting.front());
                shared->waiting.pop_front();
            }
            item.work();
            item.over = services.now();
            const std::lock_guard lists(shared->lists);
            shared->over.push_back(std::move(item)); // so that nothing of it is destroyed here
        }
    });
    spent += services_.now() - began;
    if (taken) {
        refused_since_ = 0;
        return;
    }
    const std::lock_guard lists(shared_->lists);
    shared_->busy = false;
    if (!refused_since_) refused_since_ = services_.now();
}

void Commands::give_way(Nanos until) { shared_->others_until.store(until, std::memory_order_relaxed); }

unsigned Commands::count() const {
    const std::lock_guard lists(shared_->lists);
    return static_cast<unsigned>(shared_->waiting.size() + shared_->over.size()) + shared_->busy;
}

bool Commands::call_next(Nanos now) {
    Item item;
    {
        const std::lock_guard lists(shared_->lists);
        if (shared_->over.empty() || shared_->over.front().over > now) return false;
        item = std::move(shared_->over.front());
        shared_->over.pop_front();
    }
    item.then();
    return true;
}

void Commands::look_in(Nanos pause) {
    timer_ = services_.at(services_.now() + pause, [this] {
        timer_ = 0;
        look();
    });
}

void Commands::look() {
    while (call_next(services_.now())) {}
    start();
    if (refused_since_ && services_.now() - refused_since_ >= kPatience) do_next();
    if (!timer_ && count()) look_in(kLook);
}

// Does it itself.
void Commands::do_next() {
    Item item;
    {
        const std::lock_guard lists(shared_->lists);
        if (shared_->waiting.size() <= 1) refused_since_ = 0;
        if (shared_->waiting.empty()) return;
        item = std::move(shared_->waiting.front());
        shared_->waiting.pop_front();
    }
    const Nanos began = services_.now();
    item.work();
    spent += services_.now() - began;
    item.then();
}

// A forked child does not have the thread, and must not wait for it.
void Commands::stop() {
    if (timer_) services_.cancel(std::exchange(timer_, 0));
    refused_since_ = 0;
    {
        const std::lock_guard lists(shared_->lists);
        for (Item& item : std::exchange(shared_->waiting, {})) shared_->over.push_back(std::move(item));
    }
    if (shared_->process == getpid()) const std::lock_guard running(shared_->running);
}

void Commands::halt() {
    stop();
    while (call_next(~Nanos{0})) {}
}

void Commands::drop() {
    stop();
    const std::deque<Item> over = [&] {
        const std::lock_guard lists(shared_->lists);
        return std::exchange(shared_->over, {});
    }();
}

} // namespace ucx_mp::link
