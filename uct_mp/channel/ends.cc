#include "uct_mp/channel/ends.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "uct_mp/channel/core.h"

namespace ucx_mp::channel {

using connect::Connection;

Status Ends::make_end(Connection& connection, std::size_t path) {
    Channel& channel = core_.directory.channel_of(connection);
    if (channel.ending.renewing) return Status::busy;
    if (channel.wiring.prepared.taken) return Status::connection_reset; // it has been in use: see drop_ends()
    if (path == 0) {
        const std::size_t count = connection.paths.size();
        drop_prepared(channel); // should there be any, progress has to destroy them
        channel.wiring.prepared.paths = std::make_unique<Path[]>(count);
        channel.wiring.prepared.count = static_cast<std::uint8_t>(count);
    }
    Path& sub = channel.wiring.prepared.paths[path];
    sub.rail = static_cast<std::uint8_t>(connection.local_rail(path));
    if (sub.rail >= core_.rails.size()) return Status::invalid_param;
    const verbs::Rail& rail = core_.rails[sub.rail];
    sub.device = static_cast<std::uint8_t>(rail.device);
    sub.kind = connection.paths[path].kind;
    if (!connection.has_end(path)) return Status::ok;
    verbs::QueuePair broken, qp = make_half(rail, LogLevel::debug, &broken);
    const int error = errno;
    const bool full = error == ENOMEM && !broken;
    if (broken) entomb(std::move(broken), rail);
    sub.unconnected = (!qp && may_do_without(channel, rail)) || is_news(connection, rail);
    if (!qp && !sub.unconnected) {
        if (full && makes_room(core_.adapters[rail.device])) return Status::busy;
        core_.services.say(LogLevel::error, "cannot create a queue pair on %s: %s", rail.name.c_str(),
                           std::strerror(error));
        return Status::no_memory;
    }
    constexpr std::uint32_t kNobody =
        0xfffffe; // the number that a dead adapter's end gets: requests to it are not answered
    connection.ends[path].qp_number = qp ? qp->qp_num : kNobody;
    make_queue(connection, sub, std::move(qp));
    return Status::ok;
}

void Ends::make_queue(const Connection& connection, Path& sub, verbs::QueuePair qp) {
    const bool tagged = connection.wants_tag();
    sub.own[0] =
        std::make_unique<SendQueue>(std::move(qp), core_.adapters[sub.device], core_.config,
                                    core_.inline_bytes - (tagged ? std::min(core_.inline_bytes, kTagBytes) : 0),
                                    tagged ? link::Needs::tag : link::Needs::nothing);
    sub.queue[0] = sub.queue[1] = sub.own[0].get();
}

// True: a path without this end counts as failed, and recovery repairs it. That is needed over RoCE, where the kernel
// resolves the way to the other end and reports an error if a port is down. It is also needed for an adapter that dies
// while a connection is made.
bool Ends::may_do_without(const Channel& channel, const verbs::Rail& rail) const {
    if (!core_.config.recovery.enabled || channel.self) return false;
    verbs::DeviceEvents& events = *core_.devices.device_of(rail).events;
    events.read();
    return rail.ethernet || events.seen(0).fatal;
}

// The adapter has been opened again, and the handshake has told the peer of an earlier life. So the peer's keys belong
// to that life, too.
bool Ends::is_news(const Connection& connection, const verbs::Rail& rail) const {
    return core_.devices.device_of(rail).life != 0 && core_.config.recovery.enabled &&
           !core_.directory.channels[connection.local_id & kSlotMask]->self && !core_.control->knows_rails(connection);
}

verbs::QueuePair Ends::make_half(const verbs::Rail& rail, LogLevel level, verbs::QueuePair* broken) {
    Adapter& adapter = core_.adapters[rail.device];
    {
        const std::lock_guard lock(core_.services);
        if (verbs::QueuePair used = take_rested(adapter)) {
            if (verbs::init_rc(used.get(), rail) == 0) return used;
            entomb(std::move(used), rail); // the adapter may have died
        }
    }
    verbs::QueuePair qp =
        verbs::create_rc(*adapter.device, rail, adapter.queues(),
                         {core_.config.send_depth + 1, core_.limits.max_iov + 2, core_.inline_bytes}, nullptr, broken);
    if (!qp) {
        const int error = errno;
        core_.services.say(level, "cannot create a queue pair on %s: %s", rail.name.c_str(), std::strerror(error));
        errno = error;
    }
    return qp;
}

// The adapter makes no more queue pairs. If one rests in the pool, or is to be destroyed, progress gives it back.
// False: there is none.
bool Ends::makes_room(const Adapter& adapter) {
    const std::lock_guard lock(core_.services);
    // Queue pairs of other adapters make no room here. If they counted, those that this handshake has made there would
    // put it off for ever.
    const bool dies = std::any_of(graves.begin(), graves.end(), [&](auto& dead) { return dead->adapter == &adapter; });
    if (!dies && pool.count(kind_at(adapter)) == 0) return false;
    short_of_ |= 1u << adapter.index;
    core_.attention.store(true, std::memory_order_relaxed);
    return true;
}

// A resting queue pair of an adapter that makes no more. The caller destroys it. With the lock held.
verbs::QueuePair Ends::one_in_the_way() {
    for (unsigned i = 0; i < core_.adapter_count && short_of_; ++i)
        if (short_of_ >> i & 1)
            if (verbs::QueuePair qp = pool.give_back(kind_at(core_.adapters[i])))
                return short_of_ &= ~(1u << i), std::move(qp);
    return nullptr;
}

Status Ends::connect_end(Connection& connection, std::size_t path) {
    Channel& channel = core_.directory.channel_of(connection);
    if (channel.wiring.prepared.taken || channel.wiring.prepared.count != connection.paths.size())
        return Status::connection_reset;
    if (connection.remote_rail_index(path) >= connection.remote_rails.size()) return Status::invalid_param;
    const path::RemoteRail& remote = connection.remote_rail(path);
    Path& sub = channel.wiring.prepared.paths[path];
    const verbs::Rail& rail = core_.rails[sub.rail];
    sub.remote_device = remote.device;
    sub.dc.tag = connection.dc_tag;
    if (connection.is_absent(path)) return Status::ok;
    sub.unconnected |= is_news(connection, rail);
    const verbs::RemoteEnd end = remote_end(connection, connection.paths[path], connection.remote_ends[path]);
    if (sub.kind == path::Kind::dc) {
        if (sub.unconnected) return Status::ok;
        sub.dc.ah =
            core_.dc.handles.get(core_.devices, rail, end.destination(), core_.config.reliability.service_level);
        sub.dc.dct_number = remote.dct_number;
        sub.dc.key = key_of_life(connection.dc_key, remote.life);
        sub.unconnected = !sub.dc.ah && core_.config.recovery.enabled && !channel.self;
        if (!sub.dc.ah)
            core_.services.say(sub.unconnected ? LogLevel::warn : LogLevel::error,
                               "cannot make an address handle on %s: %s", rail.name.c_str(), std::strerror(errno));
        return sub.dc.ah || sub.unconnected ? Status::ok : Status::io_error;
    }
    const int error = sub.unconnected ? 0
                                      : verbs::connect_rc(sub.own[0]->qp.get(), rail, end, core_.config.reliability,
                                                          connection.ends[path].psn);
    if (error) {
        sub.unconnected = may_do_without(channel, rail);
        core_.services.say(sub.unconnected ? LogLevel::warn : LogLevel::error, "cannot connect a queue pair on %s: %s",
                           rail.name.c_str(), std::strerror(error));
        if (!sub.unconnected) return Status::io_error;
    }
    sub.own[0]->begin_packets(connection.ends[path].psn, end.mtu);
    if (!channel.self && !sub.unconnected)
        core_.observer->life.load_first_alternate(connection, static_cast<PathIndex>(path), sub);
    return Status::ok;
}

verbs::RemoteEnd Ends::remote_end(const Connection& connection, const path::PathSpec& route,
                                  const connect::LocalEnd& end) const {
    const bool server = connection.server;
    const verbs::Rail& rail = core_.rails[server ? route.server_rail : route.client_rail];
    const path::RemoteRail& remote = connection.remote_rails[server ? route.client_rail : route.server_rail];
    return {static_cast<std::uint16_t>(remote.lid + (server ? route.client_bits : route.server_bits)),
            server ? route.server_bits : route.client_bits,
            std::min(rail.mtu, remote.mtu),
            end.qp_number,
            end.psn,
            remote.gid};
}

void Ends::drop_ends(Connection& connection) {
    Channel& channel = core_.directory.channel_of(connection);
    drop_prepared(channel);
    connection.ends.clear();
    // The channel was in use before the handshake was over, and the peer has forgotten the connection.
    if (channel.wiring.prepared.taken && !channel.ending.renewing)
        core_.mail.tell({.what = Mail::What::failed, .channel = &channel, .status = Status::connection_reset});
}

verbs::QueuePair Ends::take_rested(const Adapter& adapter) { return pool.take(kind_at(adapter), core_.services.now()); }

void Ends::entomb(verbs::QueuePair qp, const verbs::Rail& rail) {
    graves.push_back(std::make_unique<SendQueue>(std::move(qp), core_.adapters[rail.device], core_.config,
                                                 core_.inline_bytes, link::Needs::nothing));
    core_.attention.store(true, std::memory_order_relaxed);
}

void Ends::drop_prepared(Channel& channel) {
    for (unsigned i = 0; i < channel.wiring.prepared.count && channel.wiring.prepared.paths; ++i)
        for (auto& own : channel.wiring.prepared.paths[i].own)
            if (own) graves.push_back(std::move(own));
    channel.wiring.prepared.paths.reset();
    channel.wiring.prepared.count = 0;
    core_.attention.store(true, std::memory_order_relaxed);
}

// Works for kTurn at most, then leaves as much time to others, as handshakes do (connect/turns.cc).
unsigned Ends::clear_graves(bool occupied) {
    constexpr Nanos kTurn = 200'000;
    const Nanos begin = core_.services.now();
    Nanos now = begin;
    if (occupied && begin < next_clearing_) return 0;
    unsigned n = 0;
    for (; now - begin < kTurn; now = core_.services.now(), ++n) {
        std::unique_ptr<SendQueue> dead;
        verbs::QueuePair beyond;
        {
            const std::lock_guard lock(core_.services);
            beyond = pool.trim(pool_places());
            if (!beyond) beyond = one_in_the_way();
            if (graves.empty() && !beyond) {
                short_of_ = 0;
                break;
            }
            if (!beyond) {
                dead = std::move(graves.back());
                graves.pop_back();
            }
        }
        if (dead) (void)keep(*dead); // if it is not kept, it is destroyed here
    }
    next_clearing_ = now + (now - begin);
    return n;
}

link::QueuePairPool::Kind Ends::kind_at(const Adapter& adapter) const { return {adapter.index, adapter.device->life}; }

// A limit of connections saves memory, so with a low one few are kept. A side without endpoints keeps none. With
// alternate routes (apm) none are kept either: an adapter may tell late that a queue pair has migrated, and names it by
// a number that another channel could have by then.
unsigned Ends::pool_places() const {
    if (core_.directory.endpoints == 0 || core_.config.apm) return 0;
    const unsigned most = core_.config.queue_pair_pool, limit = core_.config.max_connections;
    return limit ? std::min(most, 2 + limit / 4) : most;
}

// Puts a queue pair into the pool, in RESET. That takes one command. Destroying it and making another takes two, one of
// which is the slowest of all. False: it cannot be kept.
bool Ends::keep(SendQueue& dead) {
    if (!dead.qp || !dead.idle() || dead.adapter->device->events->seen(0).fatal) return false;
    const link::QueuePairPool::Kind kind = kind_at(*dead.adapter);
    {
        const std::lock_guard lock(core_.services);
        if (pool.count(kind) >= pool_places() || (short_of_ >> dead.adapter->index & 1)) {
            short_of_ &= ~(1u << dead.adapter->index);
            return false;
        }
    }
    if (verbs::to_reset(dead.qp.get()) != 0) return false;
    dead.adapter->forget(); // another channel may get the queue pair, with the same number
    const std::lock_guard lock(core_.services);
    pool.put(std::move(dead.qp), kind, core_.services.now() + core_.config.recovery.packet_lifetime);
    return true;
}

// Another interface may have opened the device again already. Until we do so, too, peers must not read through it, so
// the key is 0.
std::uint32_t Ends::probe_key(const verbs::Rail& rail) {
    verbs::RemoteKeys keys;
    probe_region.look_up(keys);
    return keys.life(rail.device) == core_.devices.device_of(rail).life ? keys.rkey[rail.device] : 0;
}

} // namespace ucx_mp::channel
