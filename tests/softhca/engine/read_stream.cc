#include "engine/read_stream.h"

#include <algorithm>

namespace softhca {

namespace {
constexpr uint32_t kMostGathered = 1 << 18; // bytes
}

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

bool ReadStream::continues(const Chunk& c) const {
    const Chunk& g = gathered_;
    return g.source && c.lost == 0 && c.era == g.era && c.item == g.item && c.psn == g.psn &&
           c.offset == g.offset + g.payload && c.payload <= kMostGathered - g.payload;
}

void ReadStream::chunk_arrived(Chunk& c) {
    if (continues(c)) {
        gathered_.payload += c.payload;
        gathered_.arrived = c.arrived;
    } else {
        deliver_gathered();
        if (c.lost != 0 || c.last_of_message || !owner_.engine_.gather(*this, c.arrived)) return deliver(c);
        gathered_ = c;
    }
    if (c.last_of_message) deliver_gathered();
}

void ReadStream::deliver_gathered() {
    if (!gathered_.source) return;
    gathered_.source = nullptr;
    deliver(gathered_);
}

void ReadStream::deliver(Chunk& c) {
    if (owner_.dead_ || c.era != life_) return;
    owner_.read_arrived(c.item, c, nullptr, c.psn);
    owner_.settle();
}

} // namespace softhca
