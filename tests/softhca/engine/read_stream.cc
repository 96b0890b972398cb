#include "engine/read_stream.h"

#include <algorithm>

namespace softhca {

void ReadStream::start(uint64_t pos, uint32_t psn, uint64_t offset, uint32_t from_port, QpRec* target, Nanos when) {
    Requester& o = owner_;
    if (pos < o.head_ || pos >= o.tail_) return; // a duplicate request of a read that is complete
    jobs_.push_back({pos, offset, o.wqe(pos).total, psn, target->qpn.load(), from_port, o.path_bits_of(o.wqe(pos))});
    source_port = from_port;
    source_qpn = jobs_.back().target_qpn;
    o.engine_.network().activate(*this, when);
}

bool ReadStream::next_chunk(Chunk& c, Nanos) {
    if (jobs_.empty()) return false;
    Job& j = jobs_.front();
    const uint32_t mtu = owner_.mtu;
    const uint64_t left = j.total - j.offset;
    const uint32_t n = std::min<uint32_t>(owner_.engine_.chunk_packets(), packets_of(left, mtu));
    c = Chunk{};
    c.source = this;
    c.src_port = j.from_port;
    c.dlid = owner_.source_lid(j.path_bits);
    c.payload = static_cast<uint32_t>(std::min<uint64_t>(left, static_cast<uint64_t>(n) * mtu));
    c.packets = static_cast<uint16_t>(n);
    c.first_of_message = false;
    c.psn = j.target_qpn; // what the arrival needs: who answered
    c.era = life_;
    c.item = j.pos;
    c.offset = j.offset;
    j.offset += c.payload;
    c.last_of_message = j.offset >= j.total;
    if (c.last_of_message) jobs_.erase(jobs_.begin());
    return true;
}

void ReadStream::chunk_arrived(Chunk& c) {
    if (owner_.dead_ || c.era != life_) return;
    owner_.read_arrived(c.item, c, nullptr, c.psn);
    owner_.settle();
}

} // namespace softhca
