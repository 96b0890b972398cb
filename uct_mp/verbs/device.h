// The adapters of this host that a memory domain uses, and their ports as rails.
//
// Threads: opened and closed by one thread; const afterwards and readable by all (rates
// and states of rails change: see path/). A user that goes on with a device that has
// died and is there again has a copy of its own. Units: bytes, bytes per nanosecond.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "uct_mp/host/services.h"
#include "uct_mp/host/status.h"
#include "uct_mp/verbs/device_events.h"
#include "uct_mp/verbs/gid.h"
#include "uct_mp/verbs/handle.h"

namespace ucx_mp::verbs {

inline constexpr unsigned kMaxDevices = 8; // a packed remote key holds one key per device
inline constexpr unsigned kMaxRails = 16;

class Registry;

// One life of a device (registry.h). Copies are of the same life; the last one closes it.
struct Device {
    std::shared_ptr<ibv_context> context;
    std::shared_ptr<ibv_pd> pd;
    std::string name;
    std::uint64_t guid = 0;
    unsigned index = 0;   // in DeviceSet: those with an active port first, by ascending GUID; names our keys to peers
    unsigned max_sge = 1; // of a send
    unsigned max_qp_wr = 0;
    unsigned max_cqe = 0;
    unsigned max_srq_wr = 0;
    unsigned max_rd_atomic = 1; // outstanding reads and atomics, both as initiator and as responder
    bool has_dc = false;
    bool has_apm = false;                 // automatic path migration
    bool has_timestamps = false;          // ibv_cq_ex with completion timestamps, and a clock that can be read
    double ns_per_tick = 1;               // nominal, of the completion clock
    unsigned timestamp_bits = 64;         // valid bits of a completion timestamp; then the counter wraps
    std::uint8_t life = 0;                // how often it has been opened again; kLastLife at most
    std::shared_ptr<DeviceEvents> events; // shared by all who use the device
};

// A local (device, port) that carries InfiniBand traffic, over its own kind of link or over Ethernet (RoCE).
struct Rail {
    unsigned index = 0;  // in DeviceSet
    unsigned device = 0; // DeviceSet::devices
    std::uint8_t port = 1;
    std::uint16_t lid = 0;           // base LID
    std::uint8_t lmc = 0;            // the port answers on 2^lmc LIDs
    std::uint64_t subnet_prefix = 0; // RoCE: network_of()
    std::uint64_t port_guid = 0;     // of GID 0
    bool ethernet = false;           // RoCE: no LIDs, but
    Gid gid{};                       // the address in use, and
    std::uint8_t gid_index = 0;      // its place in the adapter's table when it was looked up: gid_index_now()
    std::uint16_t partition = 0;     // InfiniBand: number of the partition that is wanted (DeviceConfig), and
    std::uint16_t in_use = 0;        // number of the key that it was last active with: kept while the port has it
    std::uint16_t pkey = 0xffff;     // the key in use; 0: the port has no fitting one, and is not active
    std::uint16_t pkey_index = 0;    // its place in the port's table
    bool roce_2 = false;             // version 2, else 1
    ibv_mtu mtu = IBV_MTU_1024;      // active
    double rate = 1;                 // bytes/ns of payload that the link can carry (after encoding)
    std::string name;                // "softhca_0:1"
    bool active = true;              // at the last query; false: LID, MTU and rate may be none or old
};

struct DeviceConfig {
    // Rails to use, in this order: "device:port", or "device" for its InfiniBand and RoCE ports. A rail may be named
    // once. Empty: every such port, the first kMaxRails of them on the first kMaxDevices adapters, active ones before
    // others; one at least must be active.
    std::vector<std::string> rails;
    // Number of the partition: the low 15 bits of a key. A key with full membership goes before one without. 0: the
    // port's first key with full membership.
    std::uint16_t partition = 0;
};

class DeviceSet {
public:
    // Opens what the configuration names. On failure `error` is one line (variable, value, what is allowed).
    // No device at all: Status::unreachable, error says why. A named rail that doesn't exist: invalid_param. A rail
    // that is not active is kept, it may come up. (But an adapter that nobody has named is left out if it has no active
    // port, and either fails or lacks the DC transport that others have.)
    // An adapter that is dead already is kept, too, behind the others: its events say so (`fatal`).
    // Its unknown ports and abilities are taken to be as with those that live. Its context is one
    // of theirs. An adapter that we may not open is none of ours, unless it is named.
    [[nodiscard]] static Status open(const DeviceConfig& config, DeviceSet& out, std::string& error);
    // Names and cheap facts only (no protection domain), for a query of resources. Never fails; empty if none.
    [[nodiscard]] static std::vector<std::string> active_ports();
    [[nodiscard]] static bool has_ports(); // active or down: one that comes up would be a rail

    [[nodiscard]] std::span<const Device> devices() const { return devices_; }
    [[nodiscard]] std::span<const Rail> rails() const { return rails_; }
    [[nodiscard]] const Device& device_of(const Rail& rail) const { return devices_[rail.device]; }
    [[nodiscard]] bool all_have_dc() const;

    // Common to all copies.
    [[nodiscard]] const std::shared_ptr<Registry>& registry() const { return registry_; }
    // This copy goes on with a later life of a device.
    void renew(const Device& device) { devices_[device.index] = device; }

private:
    std::shared_ptr<Registry> registry_;
    std::vector<Device> devices_;
    std::vector<Rail> rails_;
};

// RoCE: the present place of our address in the table; an interface that has been down
// may have another one. Asks the adapter. If it is not there (any more): the last place.
[[nodiscard]] std::uint8_t gid_index_now(ibv_context* context, const Rail& rail);

// Whether it has died, by the events so far. Asks for its events.
[[nodiscard]] bool is_dead(const Device& device);

// The device after its death, if it is there again (by its GUID) with its old abilities. False: `trouble` says why.
// Not after its last life: keys of its first one could not be told from those of now.
inline constexpr std::uint8_t kLastLife = 240;
[[nodiscard]] bool open_again(const Device& dead, Device& out, std::string& trouble);

// Asks the port again and updates the properties that may have changed (LID, LMC, prefix, partition key, GID, MTU,
// rate, active). For a copy of a rail, held by a reader of port events. False: the device does not answer, nothing
// changed. Slow path.
[[nodiscard]] bool refresh(const Device& device, Rail& rail);

} // namespace ucx_mp::verbs
