#include "failover_sim/job.h"

#include <algorithm>

namespace ucx_mp::failover {

// -- Process

Process::Process(Job& job, unsigned host, const verbs::DeviceSet& devices, const channel::Config& config)
    : SimTimers(job.world), job_(job), host_(host), devices_(devices) {
    for (auto& handler : handlers_) handler = {ignore, nullptr, 0};
    std::string error;
    if (failed(open_interface(devices, config, *this, *this, heap_.keys, handlers_, iface_, error)))
        throw std::runtime_error(error);
}

Channel& Process::channel_to(Process& peer) {
    std::string error;
    Channel* channel = iface_->attach(peer.iface_->address(), error);
    if (!channel) throw std::runtime_error(error);
    return *channel;
}

void Process::became_due() { job_.make_ready(*this); }

void Process::log(LogLevel level, const char* line) {
    if (level == LogLevel::error) ++errors;
    std::fprintf(stderr, "%12.3f us  host %u  %s\n", static_cast<double>(now()) / 1e3, host_, line);
}

void Process::peer_failed(Channel&, Status) { ++peers_failed; }

bool Process::turn() {
    if (activity == Activity::stopped) return false;
    if (activity == Activity::computing) return iface_->serve() != 0;
    for (bool any = false;; any = true) {
        const Nanos begin = now();
        const bool more = run_due() | (iface_->progress() != 0);
        longest_stall = std::max(longest_stall, now() - begin);
        if (on_turn) on_turn();
        if (!more) return any;
    }
}

// -- Job

Job::Job(const std::string& fabric, std::vector<std::string> rails, softhca::sim::Options options)
    : world(fabric, options), rails_(std::move(rails)), by_host_(world.nodes()) {}

Job::~Job() {
    world.on_command(nullptr);
    for (auto& process : processes_) process->iface_.reset();
    processes_.clear();
    devices_.clear();
}

Process& Job::add(unsigned host, channel::Config config) {
    if (host >= world.nodes()) throw std::runtime_error("the fabric has no node " + std::to_string(host));
    verbs::DeviceSet& devices = devices_[host];
    if (by_host_[host].empty()) {
        world.select(host);
        std::string error;
        if (failed(verbs::DeviceSet::open({rails_}, devices, error))) throw std::runtime_error(error);
    }
    // progress() is called only when there is something to be found; then it looks everywhere.
    config.control_interval = config.event_interval = config.quiet_interval = config.silent_interval = 1;
    config.seed = 1'000'003 + processes_.size();
    processes_.push_back(std::make_unique<Process>(*this, host, devices, config));
    by_host_[host].push_back(processes_.back().get());
    make_ready(*processes_.back());
    return *processes_.back();
}

void Job::charge_commands(Nanos cost) {
    for (const char* which : {"create", "modify", "query", "reg"})
        world.fault(std::string("command-cost ") + which + " " + std::to_string(cost) + "ns all");
    charging_ = true;
    world.on_command([this](Nanos time) {
        if (!current_) return; // set-up
        Process& process = *current_;
        process.busy_ = true;
        world.at(world.now() + time, [this, &process] {
            process.busy_ = false;
            make_ready(process);
        });
        process.fiber_->leave();
    });
}

void Job::poll_every(Nanos interval) {
    for (auto& process : processes_) make_ready(*process);
    world.at(world.now() + interval, [this, interval] { poll_every(interval); });
}

void Job::poll_every(Nanos interval, Process& process) {
    make_ready(process);
    world.at(world.now() + interval, [this, interval, &process] { poll_every(interval, process); });
}

void Job::make_ready(Process& process) {
    if (!std::exchange(process.listed_, true)) ready_.push_back(&process);
}

bool Job::give_turn(Process& process) {
    if (process.busy_) return false; // when its command is over it looks at everything
    if (!charging_) return process.turn();
    if (!process.fiber_)
        process.fiber_ = std::make_unique<Fiber>([&process] {
            for (;;) {
                process.did_something_ = process.turn();
                process.fiber_->leave();
            }
        });
    process.did_something_ = true; // if it stops in the middle
    current_ = &process;
    process.fiber_->enter();
    current_ = nullptr;
    return process.did_something_;
}

void Job::settle() {
    for (;;) {
        bool any = false;
        const auto touched = world.touched();
        scratch_.assign(touched.begin(), touched.end());
        for (const std::uint32_t host : scratch_)
            for (Process* process : by_host_[host]) any |= give_turn(*process);
        for (Process* process : std::exchange(ready_, {})) {
            process->listed_ = false;
            any |= give_turn(*process);
        }
        if (!any && ready_.empty()) return;
    }
}

bool Job::until(const std::function<bool()>& condition, Nanos limit) {
    const Nanos end = world.now() + limit;
    settle();
    while (!condition()) {
        if (world.now() > end || !world.step()) return false;
        settle();
    }
    return true;
}

void Job::run_for(Nanos time) {
    const Nanos end = world.now() + time;
    world.at(end, [] {}); // something happens then
    (void)until([&] { return world.now() >= end; }, time);
}

void Job::connect(const std::vector<std::pair<unsigned, unsigned>>& pairs) {
    constexpr std::uint8_t kHello = 31;
    std::uint64_t arrived = 0;
    for (auto& process : processes_)
        process->on_am(
            kHello, [](void* n, void*, std::size_t, unsigned) { return ++*static_cast<std::uint64_t*>(n), Status::ok; },
            &arrived);
    auto left = pairs;
    for (unsigned tries = 0; arrived < pairs.size(); ++tries) {
        if (tries == 100'000) throw std::runtime_error("not connected");
        std::erase_if(left, [&](const auto& pair) {
            Channel& to = process(pair.first).channel_to(process(pair.second));
            return process(pair.first).iface().am_short(to, kHello, 0, nullptr, 0) != Status::no_resource;
        });
        run_for(20'000);
    }
    for (auto& process : processes_) process->on_am(kHello, Process::ignore, nullptr);
}

} // namespace ucx_mp::failover
