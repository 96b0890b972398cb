// How anybody talks to a session's keeper: sequenced packets on an abstract unix socket that is named from the user and
// the session. Used by processes that join (core/join.cc), launchers and commands (session/client.h).
// Client: Hello. Keeper: Welcome (+ the segment's descriptor if status is 0). What follows depends on the kind:
//  process   nothing; the connection stays open, its end is a hint that the process is gone (or has called exec)
//  launcher  text packets (session/keeper.h); the session lives as long as the connection does
//  command   one command per packet; the answer is Reply packets
//  observer  nothing; gets the segment to read counters and does not keep the session alive
#pragma once
#include <cstdint>
#include <string>

#include "core/segment.h"

struct sockaddr_un;

namespace softhca {

inline constexpr uint32_t kHelloMagic = 0x53484c4f;
inline constexpr uint32_t kLayout =
    static_cast<uint32_t>(sizeof(Segment) ^ sizeof(QpRec) << 4 ^ sizeof(CqRec) << 8 ^ sizeof(RecvQueue) << 12 ^
                          sizeof(ProcSlot) << 16 ^ kSegmentBytes >> 20);

enum class HelloKind : uint32_t { process, launcher, command, observer };

struct Hello {
    uint32_t magic = kHelloMagic;
    uint32_t version = kSegmentVersion;
    uint32_t layout = kLayout; // builds with different records can't share a session
    HelloKind kind = HelloKind::process;
};

struct Welcome {
    uint32_t magic = kHelloMagic;
    int32_t status = 0; // errno value: refused, see text
    uint32_t slot = kNone;
    uint32_t pad = 0;
    char text[240] = {};
};

inline constexpr const char* kSocketPrefix = "softhca-"; // + uid + "-" + session

// Connects and says hello; -1 with errno (ECONNREFUSED: no such session). Waits at most a minute for the answer:
// where a hundred ranks start on two processors the keeper has been seen not to be scheduled for 20 s.
// On success `segment_fd` is the session's file (close-on-exec) and `slot` this process's (kind process).
int connect_session(const std::string& session, HelloKind kind, int& segment_fd, uint32_t& slot, std::string& error);

// The address of a session's socket, for the keeper: fills sockaddr_un, returns its length; 0 if the name is too long.
uint32_t session_address(const std::string& session, ::sockaddr_un& address);

// Claims slot `slot` (kNone: any free one) for process `pid`; state `starting`. Takes table_lock. kNone: none is free.
uint32_t claim_slot(Segment& seg, uint32_t slot, int32_t pid);

// Joins as the keeper, in slot kKeeperSlot; takes it over from a dead predecessor.
class Process;
Process* attach_keeper(Segment* segment);

} // namespace softhca
