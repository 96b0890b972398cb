#include "uct_mp/recover/reports.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <set>
#include <utility>

namespace ucx_mp::recover {

namespace {

constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kShort = 100'000'000;   // a shorter outage is no warning
constexpr Nanos kTogether = 20'000'000; // hosts that come back within this time share a line
constexpr Nanos kLinger = 500'000'000;  // ... or within this time, while others are still away
constexpr Nanos kWindow = 60 * kSecond; // time in which the outages of a host are counted
constexpr unsigned kSingly = 3;         // so many of them are logged one by one
constexpr Nanos kLong = 5 * kSecond;    // a later one is logged by itself if it lasts for longer than this
constexpr std::size_t kNamed = 3;       // hosts that have a line each; more of them share one line
constexpr std::size_t kWays = 4;        // pairs of ports in a line
constexpr unsigned kBurst = 16;         // lines about paths in a second
constexpr double kLess = 0.95;          // a port that comes up below this share of its best rate is reported

std::string seconds(Nanos t) {
    char text[32];
    std::snprintf(text, sizeof text, t < 10 * kSecond ? "%.1f s" : "%.0f s", double(t) * 1e-9);
    return text;
}

std::string gigabytes(double rate) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g GB/s", rate);
    return text;
}

// "a, b, c and 4 more"
template <class List> std::string join(const List& words, std::size_t most) {
    std::string text;
    std::size_t count = 0;
    for (const std::string& word : words) {
        if (count == most) return text + " and " + std::to_string(words.size() - most) + " more";
        text += (count++ ? ", " : "") + word;
    }
    return text;
}

} // namespace

// A host on which a peer of this interface has been lost at least once.
struct Reports::Host {
    // -- Set by survey()
    std::vector<const Channel*> cut; // used by endpoints, but without a path
    Nanos since = 0;                 // when the first of them lost its last path
    bool is_reached = false;         // some channel to this host has a path
    // -- This outage
    bool open = false;
    bool told = false, given_up = false;
    bool ended = false; // a channel has failed for another reason: what is reached later is not that peer
    Nanos began = 0, back = 0;
    std::string name; // describe(), while something was cut
    // -- All outages
    Nanos window = 0;                 // since when they are counted; 0: none yet
    unsigned outages = 0, unsaid = 0; // unsaid: to be logged in sum
    Nanos unsaid_time = 0;            // their durations together

    [[nodiscard]] std::string describe() const {
        std::set<std::int32_t> ranks;
        for (const Channel* channel : cut) ranks.insert(channel->connection.names.rank);
        const connect::Names& names = cut.front()->connection.names;
        if (cut.size() == 1) return connect::describe(cut.front()->connection);
        ranks.erase(-1);
        if (names.host.empty()) return "the host of " + connect::describe(cut.front()->connection);
        if (ranks.empty()) return names.host + " (" + std::to_string(cut.size()) + " processes)";
        std::vector<std::string> words;
        words.reserve(ranks.size());
        for (const std::int32_t rank : ranks) words.push_back(std::to_string(rank));
        return names.host + (ranks.size() == 1 ? " rank " : " ranks ") + join(words, kNamed);
    }
};

Reports::Reports(Core& core) : core_(core) {}

Reports::~Reports() {
    if (timer_) core_.services.cancel(timer_);
    for (const auto& host : hosts_)
        if (host->unsaid) sum_up(*host, core_.services.now());
}

void Reports::say(LogLevel level, const std::string& line) {
    if (core_.services.logs(level)) core_.services.log(level, line.c_str());
}

// -- Paths

void Reports::note(const Channel& channel, Transition::What what, PathIndex path, Nanos since, std::uint32_t again,
                   const char* cause) {
    const Nanos now = core_.services.now();
    history.add({.what = what,
                 .path = path,
                 .peer = channel.uid,
                 .at = now,
                 .took = since ? now - since : 0,
                 .again = again,
                 .cause = cause});
}

void Reports::tell(const Channel& channel, PathIndex path, const char* format, ...) {
    const Nanos now = core_.services.now();
    if (now - burst_.since > kSecond) {
        if (burst_.lines > kBurst)
            say(LogLevel::info, std::to_string(burst_.lines - kBurst) + " more such lines: UCX_LOG_LEVEL=debug");
        burst_ = {.since = now};
    }
    const LogLevel level = ++burst_.lines > kBurst ? LogLevel::debug : LogLevel::info;
    if (!core_.services.logs(level)) return;
    char what[256];
    va_list args;
    va_start(args, format);
    std::vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const connect::Connection& c = channel.connection;
    say(level, core_.rails[channel.wiring.paths[path].rail].name + " -> " + connect::describe(c) + ' ' +
                   connect::describe_port(c, c.remote_rail_index(path)) + " (path " + std::to_string(path) + ") " +
                   what);
}

void Reports::port_up(const verbs::Rail& before, const verbs::Rail& now) {
    best_rates_.resize(core_.rails.size());
    double& best = best_rates_[now.index];
    if (before.active || before.lid || verbs::is_set(before.gid)) best = std::max(best, before.rate);
    if (now.rate < kLess * best && before.rate >= kLess * best)
        say(LogLevel::warn, now.name + " is up at " + gigabytes(now.rate) + " only, before it was " + gigabytes(best) +
                                ": look at its cable and at the port that it leads to");
    best = std::max(best, now.rate);
}

// -- Hosts

bool Reports::is_cut(const Channel& channel) {
    if (!channel.wiring.recovery) return false;
    const bool has_left = channel.ending.leaving && !channel.ending.goodbye.idle;
    return channel.usage.endpoints != 0 && !has_left && channel.wiring.scheduler->paths().usable() == 0;
}

// Keys by which a peer's host is recognised. A port that is down has no address any more. So the peer's uid is a key,
// too, since all its ports may be down.
std::vector<Reports::Port> Reports::ports_of(const Channel& channel) {
    std::vector<Port> ports{{channel.uid, 0, {}}};
    for (const path::RemoteRail& r : channel.connection.remote_rails)
        if (r.usable()) ports.emplace_back(r.subnet_prefix, r.lid, r.gid);
    return ports;
}

Reports::Host* Reports::find(const Channel& channel) const {
    for (const Port& port : ports_of(channel))
        if (const auto found = by_port_.find(port); found != by_port_.end()) return found->second;
    return nullptr;
}

Reports::Host& Reports::host_of(const Channel& channel) {
    Host* host = find(channel);
    if (!host) host = hosts_.emplace_back(std::make_unique<Host>()).get();
    for (const Port& port : ports_of(channel)) by_port_.emplace(port, host);
    return *host;
}

std::vector<Reports::Host*> Reports::survey(Nanos now) {
    for (const auto& host : hosts_) {
        host->cut.clear();
        host->is_reached = false;
    }
    const auto each = [&](const auto& look) {
        for (std::uint32_t slot = 0; slot < core_.directory.channels.size(); ++slot) {
            const Channel& channel = *core_.directory.channels[slot];
            if (!(channel.gates & (gate::not_ready | gate::failed)) && !channel.self) look(channel);
        }
    };
    each([&](const Channel& channel) {
        if (!is_cut(channel)) return;
        Host& host = host_of(channel);
        const Nanos since = channel.wiring.recovery->partition_since;
        host.since = host.cut.empty() ? since : std::min(host.since, since);
        host.cut.push_back(&channel);
        if (!std::exchange(host.open, true)) host.began = host.since;
    });
    each([&](const Channel& channel) {
        if (channel.wiring.scheduler->paths().usable() == 0) return;
        if (Host* const host = find(channel)) host->is_reached = true;
    });
    std::vector<Host*> open;
    for (const auto& host : hosts_) {
        if (!host->open) continue;
        open.push_back(host.get());
        if (!host->cut.empty()) host->name = host->describe();
        if (!host->window || (now - host->window > kWindow && !host->unsaid)) {
            host->window = now;
            host->outages = 0;
        }
    }
    return open;
}

void Reports::cut_off(Channel& channel) {
    channel.wiring.recovery->given_up_told = false;
    look_again(channel.wiring.recovery->partition_since + kShort);
}

void Reports::reached(Channel&) { look_again(core_.services.now() + kTogether); }

void Reports::look_again(Nanos at) {
    if (timer_ && due_ <= at) return;
    if (timer_) core_.services.cancel(timer_);
    due_ = at;
    timer_ = core_.services.at(at, [this] {
        timer_ = 0;
        look();
    });
}

void Reports::look_at(Host& host, Nanos now, bool others_away, std::vector<Host*>& lost, std::vector<Host*>& back) {
    if (!host.cut.empty()) {
        host.back = 0;
        if (host.told) return;
        const Nanos patience = host.outages < kSingly ? kShort : kLong;
        if (now < host.began + patience) return look_again(host.began + patience);
        host.told = true;
        lost.push_back(&host);
        return;
    }
    const Nanos took = now - host.began;
    if (host.told && host.is_reached && !host.given_up && !host.ended) {
        if (!host.back) host.back = now;
        if (others_away && now < host.back + kLinger) return look_again(host.back + kLinger);
        back.push_back(&host);
    } else if (host.is_reached && host.outages >= kSingly) {
        ++host.unsaid;
        host.unsaid_time += took;
    } else if (host.is_reached && !host.told) {
        say(LogLevel::info, host.name + " could not be reached for " + std::to_string(took / 1'000'000) + " ms");
    }
    host.outages += host.told;
    host.open = host.told = host.given_up = host.ended = false;
}

void Reports::look() {
    const Nanos now = core_.services.now();
    std::vector<Host*> lost, back;
    const std::vector<Host*> open = survey(now);
    const bool away = std::ranges::any_of(open, [](const Host* host) { return host->told && !host->cut.empty(); });
    for (Host* host : open) look_at(*host, now, away, lost, back);
    const auto names = [](const std::vector<Host*>& hosts) {
        std::vector<std::string> list;
        list.reserve(hosts.size());
        for (const Host* host : hosts) list.push_back(host->name);
        return std::to_string(hosts.size()) + " hosts (" + join(list, kNamed) + ")";
    };
    if (lost.size() > kNamed)
        say(LogLevel::warn, "no path to " + names(lost) + " is left, over " + rails_to(lost) + limit());
    else
        for (const Host* host : lost)
            say(LogLevel::warn, "no path to " + host->name + " is left: " + ways_to(*host) + limit());
    if (back.size() > kNamed)
        say(LogLevel::warn,
            names(back) + " can be reached again after " + seconds(back.front()->back - back.front()->began));
    else
        for (const Host* host : back)
            say(LogLevel::warn, host->name + " can be reached again after " + seconds(host->back - host->began));
    for (const auto& host : hosts_) {
        if (host->unsaid && now >= host->window + kWindow) sum_up(*host, now);
        if (host->unsaid) look_again(host->window + kWindow);
        if (host->open) look_again(now + kSecond); // its endpoints may be closed, which is not reported here
    }
}

void Reports::ended(const Channel& channel) {
    Host* const host = find(channel);
    if (!host || !host->open || host->given_up) return;
    host->ended = true;
    look_again(core_.services.now() + kTogether);
}

void Reports::sum_up(Host& host, Nanos now) {
    say(LogLevel::warn, host.name + " could not be reached " + std::to_string(host.unsaid) +
                            " more times in the last " + seconds(now - host.window) + ", for " +
                            seconds(host.unsaid_time) + " in all");
    host.unsaid = 0;
    host.unsaid_time = 0;
    host.window = now; // later outages are summed up again
}

void Reports::given_up(Channel& channel) {
    const Nanos now = core_.services.now(), timeout = core_.config.recovery.partition_timeout;
    if (channel.wiring.recovery->given_up_told) return; // another channel's line has named it
    const auto alone = [&](LogLevel level) {
        say(level, connect::describe(channel.connection) + " unreachable for " + seconds(timeout) +
                       " (UCX_MP_PARTITION_TIMEOUT)");
    };
    if (channel.usage.endpoints == 0) return alone(LogLevel::info);
    if (!is_cut(channel) || channel.self) return alone(LogLevel::error);
    std::vector<Host*> hosts;
    for (Host* host : survey(now)) { // channels that will be given up within half a second join this line
        std::erase_if(host->cut, [&](const Channel* other) {
            return other->wiring.recovery->given_up_told ||
                   now + kSecond / 2 < other->wiring.recovery->partition_since + timeout;
        });
        if (!host->cut.empty()) hosts.push_back(host);
    }
    if (hosts.empty()) return alone(LogLevel::error);
    std::vector<std::string> names;
    for (Host* host : hosts) {
        host->given_up = host->told = true;
        names.push_back(host->describe());
        for (const Channel* other : host->cut) other->wiring.recovery->given_up_told = true;
    }
    say(LogLevel::error, join(names, kNamed) + " unreachable for " + seconds(timeout) + " over " + rails_to(hosts) +
                             " (UCX_MP_PARTITION_TIMEOUT)");
    look_again(now + kTogether);
}

// -- Parts of lines

// Names each pair of ports once, with the latest cause of one of its paths.
std::string Reports::ways_to(const Host& host) const {
    std::map<std::string, const char*> ways;
    for (const Channel* channel : host.cut)
        for (PathIndex i = 0; i < channel->wiring.path_count; ++i) {
            const PathRecovery& r = channel->wiring.recovery->paths[i];
            if (!r.cause) continue;
            const connect::Connection& c = channel->connection;
            ways.emplace(core_.rails[channel->wiring.paths[i].rail].name + " -> " +
                             connect::describe_port(c, c.remote_rail_index(i)),
                         r.cause);
        }
    std::vector<std::string> list;
    list.reserve(ways.size());
    for (const auto& [way, cause] : ways) list.push_back(way + " (" + cause + ")");
    return join(list, kWays);
}

std::string Reports::rails_to(const std::vector<Host*>& hosts) const {
    std::set<std::string> rails;
    for (const Host* host : hosts)
        for (const Channel* channel : host->cut)
            for (PathIndex i = 0; i < channel->wiring.path_count; ++i)
                if (channel->wiring.recovery->paths[i].cause)
                    rails.insert(core_.rails[channel->wiring.paths[i].rail].name);
    return join(rails, kWays);
}

std::string Reports::limit() const {
    const Nanos timeout = core_.config.recovery.partition_timeout;
    return timeout ? ": operations wait, " + seconds(timeout) + " at most (UCX_MP_PARTITION_TIMEOUT)"
                   : ": operations wait";
}

} // namespace ucx_mp::recover
