// Processes on the hosts of a fabric, in virtual time, each with one interface of the real transport: what the cases of
// perf/failover have in common. Unlike simulator/cluster.h a host may have many processes, and verbs commands
// may take the time of the process that makes them: it stands still in the middle of its call, the others go on.
//
// Single threaded and deterministic. Times in ns of virtual time. Calls of the application (on_turn, callbacks) come
// between two calls of progress() or inside of them, as in a program.
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "failover_sim/fiber.h"
#include "simulator/process.h"
#include "uct_mp/channel/statistics.h"
#include "uct_mp/interface/open.h"

namespace ucx_mp::failover {

using channel::Channel;
using channel::Completion;
using channel::Iov;

class Job;

enum class Activity : std::uint8_t {
    running,
    computing, // makes no progress; its control plane answers, as UCX's asynchronous thread does
    stopped,   // nothing at all
};

class Process final : public channel::Events, public sim::SimTimers {
public:
    Process(Job& job, unsigned host, const verbs::DeviceSet& devices, const channel::Config& config);

    [[nodiscard]] channel::Interface& iface() { return *iface_; }
    [[nodiscard]] unsigned host() const { return host_; }
    [[nodiscard]] Channel& channel_to(Process& peer);
    void on_am(unsigned id, Status (*fn)(void*, void*, std::size_t, unsigned), void* arg) {
        handlers_[id] = {fn, arg, 0};
    }
    std::function<void()> on_turn; // the application, after every call of progress()
    Activity activity = Activity::running;

    using Memory = sim::SimMemory; // lives as long as the process
    [[nodiscard]] Memory memory(std::size_t size) { return heap_.allocate(devices_, size); }

    // The longest call of progress() since the last reset, in ns: how long the application got no turn.
    Nanos longest_stall = 0;
    unsigned errors = 0;       // lines at level error
    unsigned peers_failed = 0; // must not happen
    LogLevel threshold = LogLevel::error;

    // -- Services
    [[nodiscard]] bool logs(LogLevel level) const override { return level <= threshold || level == LogLevel::error; }
    void log(LogLevel level, const char* line) override;

private:
    friend class Job;
    static Status ignore(void*, void*, std::size_t, unsigned) { return Status::ok; }
    void room(Channel&) override {}
    void peer_failed(Channel& channel, Status status) override;
    bool turn(); // everything that can be done now; false: nothing was
    void became_due() override;

    Job& job_;
    const unsigned host_;
    const verbs::DeviceSet& devices_;
    sim::SimHeap heap_;
    channel::AmHandler handlers_[channel::kAmIds];
    std::unique_ptr<channel::Interface> iface_;

    bool listed_ = false; // in Job::ready_
    bool busy_ = false;   // in a command
    bool did_something_ = false;
    std::unique_ptr<Fiber> fiber_;
};

class Job {
public:
    // `rails`: as UCX_MP_RAILS; empty: all.
    Job(const std::string& fabric, std::vector<std::string> rails = {}, softhca::sim::Options options = {});
    ~Job();
    softhca::sim::World world;

    Process& add(unsigned host, channel::Config config);
    [[nodiscard]] Process& process(unsigned i) { return *processes_[i]; }
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(processes_.size()); }

    // From now on every command takes `cost` of its process.
    void charge_commands(Nanos cost);
    // Every process gets a turn that often, also when nothing has come: programs poll.
    void poll_every(Nanos interval);
    void poll_every(Nanos interval, Process& process); // this one

    // Until the condition holds; false: not by `limit` ns from now.
    bool until(const std::function<bool()>& condition, Nanos limit);
    void run_for(Nanos time);

    // Every process has sent something to every one in `to` and that has arrived.
    void connect(const std::vector<std::pair<unsigned, unsigned>>& pairs);

private:
    friend class Process;
    bool give_turn(Process& process);
    void make_ready(Process& process);
    void settle();

    const std::vector<std::string> rails_;
    std::map<unsigned, verbs::DeviceSet> devices_; // by host; shared by its processes, as a node's memory domains could
    std::vector<std::unique_ptr<Process>> processes_;
    std::vector<std::vector<Process*>> by_host_;
    std::vector<Process*> ready_;
    Process* current_ = nullptr;
    bool charging_ = false;
    std::vector<std::uint32_t> scratch_;
};

} // namespace ucx_mp::failover
