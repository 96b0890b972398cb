#include "uct_mp/channel/halves.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

namespace {
constexpr unsigned kMostBack = 16; // halves per rail that are kept after they were made in vain
} // namespace

// Copies of everything that the commands need, so that progress may change the originals meanwhile.
struct Halves::Order {
    verbs::Device device;
    verbs::QueuePair half;   // null: one is to be made
    verbs::QueuePair broken; // progress destroys it, since that uses its completion queues
    bool reset = false;      // `half` is one of the pool, in RESET
    verbs::Rail rail;
    verbs::Queues queues;
    verbs::QueuePairLimits limits;
    std::optional<verbs::RemoteEnd> remote;
    verbs::Reliability reliability;
    std::uint32_t psn = 0;

    void run() {
        if (!half)
            half = verbs::create_rc(device, rail, queues, limits, nullptr, &broken);
        else if (reset && verbs::init_rc(half.get(), rail) != 0)
            broken = std::move(half);
        if (half && remote && verbs::connect_rc(half.get(), rail, *remote, reliability, psn) != 0)
            broken = std::move(half);
    }
};

Halves::Halves(Core& core) : core_(core), commands_(core.services) {}

verbs::QueuePair Halves::take(const verbs::Rail& rail) {
    const auto found = std::ranges::find(ready_, rail.index, &Ready::rail);
    if (found == ready_.end()) return nullptr;
    verbs::QueuePair half = std::move(found->half);
    ready_.erase(found);
    return half;
}

std::shared_ptr<Halves::Order> Halves::order(const verbs::Rail& rail, verbs::QueuePair half) {
    const Adapter& adapter = core_.adapters[rail.device];
    auto made = std::make_shared<Order>();
    made->device = *adapter.device;
    made->rail = rail;
    made->queues = adapter.queues();
    made->limits = {core_.config.send_depth + 1, core_.limits.max_iov + 2, core_.inline_bytes};
    made->reliability = core_.config.reliability;
    made->half = half ? std::move(half) : take(rail);
    if (made->half) return made;
    const std::lock_guard lock(core_.services);
    made->half = core_.ends.take_rested(adapter);
    made->reset = made->half != nullptr;
    return made;
}

void Halves::place(const std::shared_ptr<Order>& order, Then then) {
    commands_.add([order] { order->run(); },
                  [this, order, then = std::move(then)] {
                      if (halting_) { // the device that they belong to ends now
                          order->broken.reset();
                          order->half.reset();
                      }
                      if (order->broken) give_up(std::move(order->broken), order->rail);
                      then(std::move(order->half));
                  });
}

void Halves::make(const verbs::Rail& rail, Then then) {
    verbs::QueuePair half = take(rail);
    if (!half) return place(order(rail, {}), std::move(then));
    fill();
    then(std::move(half));
}

void Halves::connect(verbs::QueuePair half, const verbs::Rail& rail, const verbs::RemoteEnd& remote, std::uint32_t psn,
                     Then then) {
    const std::shared_ptr<Order> made = order(rail, std::move(half));
    made->remote = remote;
    made->psn = psn;
    place(made, std::move(then));
    fill();
}

void Halves::retire(verbs::QueuePair half, const verbs::Rail& rail, bool asks, Ended then) {
    struct Order {
        verbs::QueuePair half;
        bool done = false;
        std::uint32_t expected = connect::kUnknownPsn;
    };
    const auto order = std::make_shared<Order>(Order{.half = std::move(half)});
    const auto run = [order, asks] {
        order->done = true;
        (void)verbs::to_error(order->half.get());
        verbs::QueuePairTruth truth;
        if (asks && verbs::query(order->half.get(), truth) == 0) order->expected = truth.rq_psn;
    };
    commands_.add(run, [this, order, run, device = rail.device, then = std::move(then)] {
        if (halting_ && core_.adapters[device].device->events->seen(0).fatal)
            order->half.reset(); // it ends with its device
        else if (!order->done)
            run();
        then(std::move(order->half), order->expected);
    });
}

void Halves::give_up(verbs::QueuePair half, const verbs::Rail& rail) {
    if (!half) return;
    const std::lock_guard lock(core_.services);
    core_.ends.entomb(std::move(half), rail);
}

void Halves::take_back(verbs::QueuePair half, const verbs::Rail& rail) {
    const auto there = static_cast<unsigned>(std::ranges::count(ready_, rail.index, &Ready::rail));
    if (half && there < std::max(kept_, kMostBack))
        ready_.push_back({.half = std::move(half), .rail = rail.index});
    else
        give_up(std::move(half), rail);
}

void Halves::keep(unsigned count) {
    kept_ = count;
    if (kept_ == 0)
        for (Ready& one : std::exchange(ready_, {})) give_up(std::move(one.half), core_.rails[one.rail]);
    fill();
}

void Halves::key_has_moved(const verbs::Rail& rail) {
    while (verbs::QueuePair half = take(rail)) give_up(std::move(half), rail);
    fill();
}

void Halves::fill() {
    for (const verbs::Rail& rail : core_.rails) {
        if (!rail.active || coming_) continue;
        const auto there = static_cast<unsigned>(std::ranges::count(ready_, rail.index, &Ready::rail));
        if (there >= kept_) continue;
        ++coming_;
        place(order(rail, {}), [this, index = rail.index, key = rail.pkey_index](verbs::QueuePair half) {
            --coming_;
            if (!half) return; // the next caller that needs one tries again
            if (core_.rails[index].pkey_index == key)
                ready_.push_back({.half = std::move(half), .rail = index});
            else
                give_up(std::move(half), core_.rails[index]);
            fill();
        });
    }
}

void Halves::halt() {
    kept_ = 0;
    halting_ = true;
    commands_.halt();
    halting_ = false;
    ready_.clear();
}

void Halves::end() {
    commands_.drop();
    ready_.clear();
}

} // namespace ucx_mp::channel
