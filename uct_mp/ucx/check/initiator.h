// The end that checks: asks the other one, writes, sends and reads over lanes. Every wait is bounded.
#pragma once

#include "uct_mp/host/services.h"
#include "uct_mp/ucx/check/side.h"

namespace ucx_mp::check {

class Initiator {
public:
    Initiator(Side& side, Stream stream) : side_(side), stream_(std::move(stream)) {}
    ~Initiator();
    // Lanes to every adapter of the other end that can be reached. False: `error`.
    [[nodiscard]] bool open(std::string& error);
    [[nodiscard]] std::vector<std::unique_ptr<Lane>>& lanes() { return side_.lanes(); }
    [[nodiscard]] const RailFacts& far(const Lane& lane) const { return facts_.rails[lane.remote_rail]; }
    [[nodiscard]] const Message& facts() const { return facts_; }
    [[nodiscard]] Side& side() { return side_; }

    [[nodiscard]] bool ask(Ask what, unsigned lane, unsigned queue_pair, Message& answer, Message question = {});
    // For questions that are answered twice: the result.
    [[nodiscard]] bool armed(Ask what, unsigned lane, Message question);
    [[nodiscard]] bool found(std::uint64_t& value);

    // Fills `length` bytes of ours with `value`, and writes them to the other end's memory
    // at `offset`; waits for the acknowledgment. False: it failed, trouble() says how.
    [[nodiscard]] bool write(Lane& lane, unsigned queue_pair, std::uint64_t value, std::size_t offset,
                             std::size_t length);
    [[nodiscard]] bool read(Lane& lane, unsigned queue_pair, std::size_t offset, std::uint64_t& value);
    [[nodiscard]] bool send(Lane& lane, unsigned queue_pair);
    [[nodiscard]] bool wait(Lane& lane); // for one completion
    [[nodiscard]] const std::string& trouble() const { return trouble_; }
    std::uint64_t stamp = 0; // of the last completion, if the lane's are stamped
    [[nodiscard]] unsigned index(const Lane& lane) const;

private:
    [[nodiscard]] bool post(Lane& lane, unsigned queue_pair, ibv_wr_opcode op, std::size_t offset, std::size_t length);

    Side& side_;
    Stream stream_;
    Message facts_;
    std::string trouble_;
};

} // namespace ucx_mp::check
