// An interface in UCX's virtual file system: its statistics, and those of each endpoint's channel.
#include "uct_mp/channel/statistics.h"
#include "uct_mp/ucx/iface.h"

namespace ucx_mp::face {

namespace {

void show(const channel::ChannelStatistics& from, ucs_string_buffer_t* text) {
    ucs_string_buffer_appendf(text, "peer %016lx %s\n", from.peer_uid, connect::name(from.state));
    ucs_string_buffer_appendf(
        text, "  messages: sent %lu delivered %lu early %lu duplicates %lu acks %lu markers %lu\n", from.sent,
        from.delivered, from.early, from.duplicates, from.acks_sent, from.markers_sent);
    for (const channel::PathStatistics& path : from.paths)
        ucs_string_buffer_appendf(text,
                                  "  path %s %s -> %s qp 0x%x %s: weight %.3f rates %.3f %.3f B/ns latency %.0f ns "
                                  "written %lu read %lu in flight %lu B requests %lu failures %u returns %u\n",
                                  path.local_rail.c_str(), path.from.c_str(), path.to.c_str(), path.qp_number,
                                  schedule::name(path.state), path.weight, path.write_rate, path.read_rate,
                                  path.latency, path.written, path.read, path.in_flight, path.requests, path.failures,
                                  path.returns);
}

void show_iface(void* obj, ucs_string_buffer_t* text, void*, std::uint64_t) {
    const auto from = Iface::of(static_cast<uct_iface_h>(obj)).statistics();
    ucs_string_buffer_appendf(text, "uid %016lx\nqueue pairs %u\nsend buffers %lu B\nreceive buffers %lu B\n", from.uid,
                              from.queue_pairs, from.send_buffer_bytes, from.receive_buffer_bytes);
    ucs_string_buffer_appendf(text, "messages not believed %lu\n", from.dropped);
    ucs_string_buffer_appendf(text, "control messages: sent %lu received %lu repeated %lu dropped %lu refused %lu\n",
                              from.control.sent, from.control.received, from.control.repeated, from.control.dropped,
                              from.control.refused);
    for (const channel::ChannelStatistics& channel : from.channels) show(channel, text);
}

// The object is an endpoint that may be gone by now: only the arguments are looked at.
void show_channel(void*, ucs_string_buffer_t* text, void* iface, std::uint64_t uid) {
    const auto from = static_cast<Iface*>(iface)->statistics();
    for (const channel::ChannelStatistics& channel : from.channels)
        if (channel.peer_uid == uid) show(channel, text);
}

} // namespace

void Iface::vfs_refresh(uct_iface_h iface) {
    Iface& self = of(iface);
    ucs_vfs_obj_add_ro_file(iface, show_iface, nullptr, 0, "statistics");
    self.peers_.each_endpoint([&](Ep& ep, const Peer& peer) {
        ucs_vfs_obj_add_dir(iface, &ep, "ep/%p", &ep);
        ucs_vfs_obj_add_ro_file(&ep, show_channel, &self, peer.uid, "statistics");
    });
}

} // namespace ucx_mp::face
