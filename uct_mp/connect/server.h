// The server's part of the handshake. It answers; only the time limit of an unfinished handshake is its own.
#pragma once

#include <string>
#include <vector>

#include "uct_mp/connect/message.h"
#include "uct_mp/connect/turns.h"

namespace ucx_mp::connect {

class Server {
public:
    explicit Server(Plane& plane) : plane_(plane) {}
    void on_request(const Target& way_back, const Message& m);
    void request_done(Connection& c, const Due& due, Status status); // our ends are made, or failed
    void on_confirm(const Target& way_back, const Message& m);
    void confirm_done(Connection& c, const Due& due, Status status); // our ends are connected, or failed
    void abandon(Connection& c, const char* why);
    static void undo(Connection& c); // takes back the changes of a request

private:
    [[nodiscard]] std::vector<path::PathSpec> plan(const Message& m, std::uint8_t& absent) const;
    [[nodiscard]] bool is_late(const Connection& c, const Message& request) const;
    // The sender of a request: anybody; the client of the handshake that it is to replace; the peer of a connection.
    enum class Proof : std::uint8_t { none, same_client, peer };
    [[nodiscard]] static Proof proof_of(const Connection& c, const Message& request);
    [[nodiscard]] bool begins_another(Connection& c, const Target& way_back, const Message& m, Proof proof);
    [[nodiscard]] bool lets_go(Connection& c);
    [[nodiscard]] bool just_answered(const Connection& c, const Target& way_back) const;
    void note_answer(Connection& c, const Target& way_back) const;
    void accept(Connection& c, const Target& way_back, const Message& m, Proof proof, std::vector<path::PathSpec> paths,
                std::uint8_t absent);
    void take_way(Connection& c, const Message& request, Proof proof) const;
    static void note_peer(Connection& c, const Message& m);
    void send_reply(Connection& c, const Target& way_back);
    void send_ready(Connection& c, const Target& way_back);
    void silence(Connection& c); // timer

    Plane& plane_;
    std::vector<std::string> said_; // reasons why peers were refused, in the log already
};

} // namespace ucx_mp::connect
