// Read responses: chunks that flow from the responder's adapter to the requester's (IB 9.7.5.1.4). The initiator's
// process runs the stream on behalf of the target; the data is copied when a chunk arrives. What has arrived by the
// time that the engine comes to it is copied together: a system call takes longer than the bytes of a chunk.
#pragma once
#include <vector>

#include "engine/requester.h"

namespace softhca {

class ReadStream final : public Source {
public:
    explicit ReadStream(Requester& owner) : owner_(owner) {}
    // A read request (or the rest of one) has been accepted at `target`, reached through port `from_port`: responses
    // for the WQE at `pos` from message offset `offset` on begin to flow at `when`.
    void start(uint64_t pos, uint32_t psn, uint64_t offset, uint32_t from_port, QpRec* target, Nanos when);
    // After a rewind: what has not left will be asked for again, what is on its way is not ours any more.
    void cancel() {
        jobs_.clear();
        ++life_;
    }
    [[nodiscard]] bool unused() const { return in_flight == 0 && !net_ready && !gathered_.source; }
    void deliver_gathered(); // see Engine::gather

    bool next_chunk(Chunk& chunk, Nanos now) override;
    void chunk_arrived(Chunk& chunk) override;

private:
    struct Job {
        uint64_t pos, offset, total;
        uint32_t psn;
        uint32_t target_qpn, from_port;
        uint8_t path_bits; // of the LID that the request came from
    };
    [[nodiscard]] bool continues(const Chunk& c) const;
    void deliver(Chunk& c);

    Requester& owner_;
    Chunk gathered_;        // has arrived and is not copied yet; source: null if there is none
    std::vector<Job> jobs_; // few, first one first; no memory while there are none
    uint32_t life_ = 0;
};

} // namespace softhca
