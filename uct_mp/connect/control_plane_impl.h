// Inside of the control plane, private to this folder. One file per role: control_plane.cc (opening, sending, arrival,
// states), client.cc, server.cc, turns.cc, question.cc, path_news.cc, rails_news.cc, goodbye.cc.
#pragma once

#include <map>
#include <optional>
#include <unordered_set>

#include "uct_mp/connect/control_plane.h"
#include "uct_mp/connect/datagrams.h"
#include "uct_mp/connect/message.h"

namespace ucx_mp::connect {

// Numbers that wrap: a is newer than b.
[[nodiscard]] constexpr bool newer(std::uint32_t a, std::uint32_t b) { return std::int32_t(a - b) > 0; }
[[nodiscard]] constexpr bool newer(std::uint16_t a, std::uint16_t b) { return std::int16_t(a - b) > 0; }

[[nodiscard]] const char* name(State state);
[[nodiscard]] std::size_t gids(std::span<const path::RemoteRail> rails); // how many are RoCE

// What a handshake has to do and waits for its turn: turns.cc.
struct Due {
    enum class What : std::uint8_t {
        send,    // the message that its state repeats
        make,    // our ends; client: and connect them
        connect, // our ends
    } what = What::send;
    Connection* connection = nullptr;
    Target way_back{};                       // of the newest copy of the message that this is about
    std::size_t path = 0;                    // next one
    Nanos since = 0;                         // when it was put there
    Nanos tried = 0;                         // send: first time that there was no room
    std::uint32_t incarnation = 0, seen = 0; // make: the connection's before; they are again, if it can't be done now
};

struct ControlPlane::Impl {
    Impl(const verbs::DeviceSet& devices_in, const ControlConfig& config_in, Services& services_in,
         const Owner& owner_in)
        : devices(devices_in), config(config_in), services(services_in), owner(owner_in),
          dct_numbers(config_in.dct_numbers) {}
    ~Impl();
    [[nodiscard]] Status open(std::string& error);

    // --- control_plane.cc
    void make_identity();
    void make_address();
    [[nodiscard]] std::size_t smallest_mtu() const; // bytes, that our handshake takes
    unsigned poll(bool occupied);
    void mend(); // control queue pairs that have failed, now and then
    void arrived(const Target& way_back, std::span<const std::uint8_t> datagram);
    // A message of one of our connections: by the name that it carries, from the peer that it belongs to.
    [[nodiscard]] Connection* connection_of(const Message& m);
    [[nodiscard]] bool known_as(const Connection& c, const Message& m) const; // uid and cookie are that peer's
    void on_refuse(const Message& m);

    // The only place where states change: asserts, logs, keeps the set of those under way; cancels the timer.
    void set_state(Connection& c, State to, const char* why);
    void set_timer(Connection& c, Nanos at, void (Impl::*fn)(Connection&));
    void cancel_timer(Connection& c);
    // Ends a handshake: drops the ends, says why. The last thing done with a connection.
    void fail(Connection& c, Status status, const std::string& why);

    [[nodiscard]] Message message(wire::Kind kind, std::uint64_t cookie, std::uint32_t transaction) const;
    [[nodiscard]] Message message_to(wire::Kind kind, const Connection& c) const;
    bool send(const Target& to, const Message& m); // false: there is no room now
    void refuse(const Target& way_back, const Message& m, wire::Reason reason);
    void refuse(const Target& way_back, const Connection& c, wire::Kind kind,
                wire::Reason reason); // its latest message

    // Our ends, if any, made or not.
    void drop_ends(Connection& c);
    [[nodiscard]] std::string describe(const Connection& c) const; // for log lines
    [[nodiscard]] std::uint64_t random();
    [[nodiscard]] std::uint64_t random_tag();
    void take_terms(Connection& c, const Message& m);
    [[nodiscard]] Terms terms_of(const Connection& c) const; // ours
    [[nodiscard]] std::uint32_t next_transaction();

    // --- turns.cc
    void send_in_turn(Connection& c);               // at once, if nobody waits
    void send_soon(Connection& c, Nanos tried = 0); // when there is room
    void make_in_turn(Connection& c, Due due);
    void connect_in_turn(Connection& c, const Target& way_back);
    // What it waits for; nullptr: nothing.
    [[nodiscard]] Due* due_of(const Connection& c);
    void drop_due(Connection& c);
    void add_due(Connection& c, Due due, bool first);
    bool send_due(Connection& c, Nanos tried); // false: there is no room now
    unsigned work();                           // until the turn is over; number of steps
    void step();
    void rest_if_due();
    void begin_rest();
    void set_rest(Nanos time);
    bool has_rested();
    void end_rest_if_over();

    // --- client.cc
    void start(Connection& c);
    // False: there is no room now. If not patient it is as good as lost then.
    bool send_request(Connection& c, bool patient);
    bool send_confirm(Connection& c, const Target& to, bool patient);
    void repeat(Connection& c);  // timer
    void give_up(Connection& c); // timer, of a start that can't succeed
    // Why a handshake can't succeed (one line, `why` may be null); ok: it can.
    [[nodiscard]] Status hopeless(const Connection& c, std::string* why) const;
    void wait_for_answer(Connection& c);
    void on_reply(const Target& way_back, const Message& m);
    void reply_done(Connection& c, const Due& due, Status status); // our ends are connected, or not
    void on_ready(const Message& m);
    void refused(Connection& c, const Message& m);
    [[nodiscard]] std::optional<Target> route(const Connection& c, unsigned attempt) const;
    [[nodiscard]] Nanos back_off(const Connection& c) const;

    // --- question.cc
    void ask(Connection& c, Nanos limit);
    void send_ping(Connection& c); // and timer
    void stop_asking(Connection& c);
    void answer(Connection& c, Answer what);
    void on_ping(const Target& way_back, const Message& m);
    void on_pong(const Message& m);

    // --- server.cc
    void on_request(const Target& way_back, const Message& m);
    void on_confirm(const Target& way_back, const Message& m);
    void accept(Connection& c, const Target& way_back, const Message& m, std::vector<path::PathSpec> paths,
                std::uint8_t absent);
    void request_done(Connection& c, const Due& due, Status status); // our ends are made, or not
    void confirm_done(Connection& c, const Due& due, Status status); // our ends are connected, or not
    void send_reply(Connection& c, const Target& way_back);
    void send_ready(Connection& c, const Target& way_back);
    void abandon(Connection& c, const char* why);
    void silence(Connection& c); // timer
    [[nodiscard]] std::vector<path::PathSpec> plan(const Message& m, std::uint8_t& absent) const;
    [[nodiscard]] bool just_answered(const Connection& c) const;

    // --- rails_news.cc
    void renew(const verbs::Rail& rail);
    void set_own(const verbs::Rail& rail);
    void tell_rails(Connection& c);
    bool send_rails(Connection& c, bool patient); // and timer; false as above
    void stop_telling(Connection& c);
    void on_rails(const Message& m);
    void on_rails_known(const Message& m);
    void take_rails(Connection& c, std::uint32_t number, const std::vector<path::RemoteRail>& rails);
    void answer_rails(Connection& c);
    [[nodiscard]] Status reopen(const verbs::Device& device, const std::vector<std::uint32_t>& new_dct_numbers,
                                std::string& error);
    void ask_keys(const Connection& c, std::uint64_t region, unsigned attempt);
    void on_keys(const Target& way_back, const Message& m);
    void on_keys_told(const Message& m);

    // --- goodbye.cc
    void say_idle(Connection& c); // and timer
    void stop_parting(Connection& c);
    void on_ended(const Target& way_back, const Message& m);
    void on_ended_known(const Message& m);
    void answer_goodbye(Connection& c);
    [[nodiscard]] Connection* parked_of(const Message& m);
    [[nodiscard]] Message goodbye_to(const Connection& c, const Goodbye& goodbye) const;

    // --- path_news.cc
    void on_path_news(const Target& way_back, const Message& m);
    bool tell_over_route(const Connection& connection, const path::PathSpec& route, PathKind kind,
                         const PathNews& news);
    [[nodiscard]] Message news_to(const Connection& c, PathKind kind, const PathNews& news) const;

    const verbs::DeviceSet& devices;
    const ControlConfig config;
    Services& services;
    const Owner owner;
    std::vector<std::uint32_t> dct_numbers; // mp_dc: as they are now
    InterfaceAddress address;
    std::size_t address_room = kMaxInterfaceAddress; // once it has been given away: the bytes it had
    std::vector<path::RemoteRail> own_rails;         // as the others see them
    std::uint32_t own_number = 0;                    // of this list; 0: as it was at first, wraps to 1
    std::uint64_t random_state = 0;
    std::uint64_t tags_made = 0;               // with a seed
    std::uint32_t newest_transaction = 0;      // of ours; 0: none yet
    std::unordered_set<Connection*> under_way; // requesting, confirming, accepting: those with timers
    std::uint32_t newest_question = 0;         // 0: none yet
    std::unordered_set<Connection*> asking;    // those with a question
    std::unordered_set<Connection*> telling;   // those that are being told our rails
    std::unordered_set<Connection*> parting;   // those with a timer for our goodbye
    bool polling = false;
    std::map<std::uint64_t, Due> waiting; // by Connection::place. Not empty: `rest`, or poll() goes on with it
    std::uint64_t newest_place = 0;
    Nanos worked = 0;         // since the others had their turn
    Services::Timer rest = 0; // runs while they have it, which has lasted so long when it fires:
    Nanos rested = 0, rest_until = 0;
    bool others_busy = false; // since it was set
    Nanos next_mend = 0;
    ControlCounters counters;
    Datagrams datagrams;
};

} // namespace ucx_mp::connect
