// The fabric as plain data: what the YAML file and the forwarding tables say, flattened into one relocatable block.
// Made by softhca/fabric.h, read by every process of a session and by the virtual-time world. Everything here is
// constant after that, except the forwarding tables, which a re-route overwrites. Offsets are bytes from the start of
// FabricImage; no pointers. Units: time in nanoseconds, rates in bytes per second, sizes in bytes, 0 = "no limit"
// unless said otherwise.
#pragma once
#include <cstdint>

namespace softhca {

inline constexpr uint32_t kImageMagic = 0x53484649; // "SHFI"
inline constexpr uint32_t kImageVersion = 4;
inline constexpr uint32_t kNone = UINT32_MAX; // "no such index"
inline constexpr uint8_t kNoRoute = 0xff;     // forwarding table entry: LID unreachable (as in IB linear tables)
inline constexpr uint32_t kMaxLid = 0xbfff;   // last unicast LID (IB specification 4.1.3)
inline constexpr uint32_t kMaxPkeys = 8;      // entries of a port's P_Key table
inline constexpr uint16_t kDefaultPkey = 0xffff, kFullMember = 0x8000;
inline constexpr uint32_t kMaxHops = 64; // IB hop limit; a longer walk is a routing loop

// What an adapter costs and can do. A field that is 0 costs nothing / has no limit: all zero is the ideal adapter.
struct AdapterLimits {
    uint32_t qp_cache_entries;   // QP contexts that the adapter holds on chip; 0 = all
    uint32_t qp_cache_miss_ns;   // added before the first chunk of a message whose QP context is not held; at the
                                 // other end (virtual time) before it is taken, if its QP or DC target is not held
    uint32_t message_ns;         // send-side cost per message and adapter (message rate = 1e9 / message_ns)
    uint32_t qp_message_ns;      // least distance between two messages of one QP
    uint32_t engines_per_port;   // send engines; a QP is bound to engine qpn % engines; 0 = one per QP
    uint32_t engine_message_ns;  // of a send engine per message, before its data: they do not overlap
    uint32_t dct_contexts;       // simultaneous initiators that a DCT serves; 0 = any; more get a busy NAK
    uint64_t engine_rate;        // bytes/s that one send engine moves
    uint64_t bus_rate;           // bytes/s of the host bus, per direction and adapter
    uint32_t dc_connect_ns;      // DCI: connect request to a new target
    uint32_t dc_disconnect_ns;   // DCI: leaving a target (after its last acknowledgment)
    uint32_t dc_busy_backoff_ns; // DCI: wait after a busy NAK
    uint32_t dc_request_ns;     // of the message units at both ends, for a request to connect or disconnect; these take
                                // up the wire then, too (virtual time)
    uint32_t command_create_ns; // costs of verbs commands, spent in the calling thread
    uint32_t command_modify_ns;
    uint32_t command_query_ns;
    uint32_t command_reg_ns;     // per registration
    uint32_t command_destroy_ns; // of a queue pair
    uint32_t wire_header;        // bytes added to every packet on the wire (LRH..ICRC; IB RC is 26..30); 0 in ideal
    int64_t clock_offset_ns;     // adapter clock = host clock * (1 + drift) + offset
    int32_t clock_drift_ppb;
    uint8_t has_dc;         // offers DCI/DCT (and looks like a ConnectX to programs)
    uint8_t has_timestamps; // completion timestamps
    uint8_t has_apm;        // automatic path migration
    uint8_t has_wait;       // requests that wait for data (raw WQEs of the mlx5 interface; looks like a ConnectX, too)
    uint32_t wait_ns;       // what a WAIT costs whose word has its value
    uint32_t wait_poll_ns;  // how often a word is looked at that has not
    uint32_t wait_limit;    // send queues that are looked at, of those that wait; 0 = all
};

struct NodeImage {
    char name[32];
    uint32_t first_device, devices; // range in devices[]
};

struct DeviceImage {
    uint32_t node;              // index in nodes[]
    uint32_t index;             // device number within the node: "softhca_<index>"
    uint32_t first_port, ports; // range in ports[]; IB port number = position + 1
    uint64_t guid;
    AdapterLimits limits;
};

struct PortImage {
    uint32_t device;      // index in devices[]
    uint32_t number;      // 1-based IB port number
    uint32_t subnet;      // index in subnets[]
    uint32_t link;        // outgoing link, index in links[]; kNone = crossbar subnet (no modelled wire) or not cabled
    uint64_t guid;        // low half of GID 0
    uint16_t lid;         // base LID, aligned to 2^lmc; 0 = port not on a subnet
    uint8_t lmc;          // 0..7
    uint8_t mtu;          // enum ibv_mtu value of the active MTU
    uint8_t speed, width; // as ibv_port_attr.active_speed / active_width
    uint8_t cabled;       // 0: physically not connected: port state DOWN
    uint8_t pad;
    uint16_t pkeys[kMaxPkeys]; // to begin with; 0: free entry
};

struct SubnetImage {
    uint64_t prefix; // high half of every GID
    uint16_t sm_lid;
    uint16_t max_lid; // highest LID in use
    uint8_t crossbar; // 1: every port reaches every other directly, without modelled links
    uint8_t pad[3];
    uint64_t lid_to_port; // offset: uint32_t[max_lid + 1], port index or kNone (a port has 2^lmc entries)
};

struct SwitchImage {
    char name[32];
    uint64_t guid;
    uint32_t subnet;
    uint32_t ports;     // external ports 1..ports
    uint64_t port_link; // offset: uint32_t[ports + 1], outgoing link of each port, kNone = not cabled
    uint64_t lft;       // offset: uint8_t[subnet.max_lid + 1], out port for a LID or kNoRoute
};

enum class EndKind : uint8_t { port, sw };

// One direction of a cable.
struct LinkImage {
    uint32_t cable;    // both directions of a cable share this number
    uint32_t reverse;  // index of the other direction
    uint32_t from, to; // index in ports[] or switches[]
    EndKind from_kind, to_kind;
    uint8_t from_port, to_port; // IB port number at that end
    uint32_t latency_ns;        // propagation + switch traversal of the far end
    uint64_t rate;              // bytes/s of data; 0 = infinite
    uint32_t buffer;            // receive buffer at the far end in bytes = the credits of this direction; 0 = infinite
    uint32_t pad;
};

// What programs' processors spend in virtual time: host_costs.h. All zero: nothing.
struct HostImage {
    uint32_t post_ns, completion_ns, receive_ns, poll_miss_ns, poll_hit_ns;
    uint32_t commands;  // 1: commands take the processor's time
    uint64_t copy_rate; // bytes/s; 0 = infinite
};

struct FabricImage {
    uint32_t magic, version;
    uint64_t bytes; // size of the whole block
    char name[64];
    uint32_t nodes, devices, ports, subnets, switches, links, cables;
    uint32_t ideal;         // 1: no model at all, everything as fast as memory
    uint32_t chunk_mtus;    // packets per chunk (contention granularity), default 4
    uint32_t dynamic_nodes; // 1: processes without a given node take the next free one
    uint64_t nodes_at, devices_at, ports_at, subnets_at, switches_at, links_at; // offsets of the arrays
    HostImage host;
    char routing[40]; // opensm's routing engines in order of preference, comma separated (for a re-route)

    template <class T> const T* at(uint64_t offset) const {
        return reinterpret_cast<const T*>(reinterpret_cast<const char*>(this) + offset);
    }
    template <class T> T* at(uint64_t offset) { return reinterpret_cast<T*>(reinterpret_cast<char*>(this) + offset); }
    const NodeImage& node(uint32_t i) const { return at<NodeImage>(nodes_at)[i]; }
    const DeviceImage& device(uint32_t i) const { return at<DeviceImage>(devices_at)[i]; }
    const PortImage& port(uint32_t i) const { return at<PortImage>(ports_at)[i]; }
    const SubnetImage& subnet(uint32_t i) const { return at<SubnetImage>(subnets_at)[i]; }
    const SwitchImage& sw(uint32_t i) const { return at<SwitchImage>(switches_at)[i]; }
    const LinkImage& link(uint32_t i) const { return at<LinkImage>(links_at)[i]; }

    // The port that answers on `lid` in `subnet`; kNone if nobody does.
    uint32_t port_of_lid(uint32_t subnet_index, uint32_t lid) const {
        const SubnetImage& s = subnet(subnet_index);
        return lid <= s.max_lid && lid != 0 ? at<uint32_t>(s.lid_to_port)[lid] : kNone;
    }
    // The outgoing link of a switch for `lid`; kNone if unreachable. One byte load: safe beside a re-route.
    uint32_t next_link(uint32_t switch_index, uint32_t lid) const {
        const SwitchImage& s = sw(switch_index);
        if (lid > subnet(s.subnet).max_lid) return kNone;
        const uint8_t out = at<uint8_t>(s.lft)[lid];
        return out == kNoRoute || out == 0 || out > s.ports ? kNone : at<uint32_t>(s.port_link)[out];
    }
};

} // namespace softhca
