// The keeper: one small process per session that holds the session's memory file, gives slots to processes that join,
// cleans up after dead ones the moment they die, and executes faults. It is forked by the first `softhca run` of a
// session, detached from it, and ends by itself when no launcher and no process of the session is left; then nothing
// of the session exists any more, because its memory has no name and its socket's name is abstract.
// Killing it does no harm: the launchers notice and start a new one on the same memory.
//
// Packets after Hello / Welcome (core/join.h), all text:
//   launcher -> keeper   "child PID"             keeps the session alive while PID lives, also without its launcher
//                        "script\nNS FAULT\n..." executes FAULT at NS of CLOCK_MONOTONIC
//                        "verbose"               asks for "log TEXT" packets
//   command  -> keeper   "ls" or a fault of faults.h; answer: one packet, "ok TEXT" or "error TEXT"
#pragma once
#include <string>

namespace softhca {

inline constexpr size_t kMaxPacket = 128 * 1024; // of text

// The session's listening socket; -1 with errno EADDRINUSE if the session has a keeper.
int bind_session(const std::string& session);
// Starts a keeper process for the session's memory `segment_fd` (formatted). Takes `listen_fd` over. False: errno.
bool spawn_keeper(const std::string& session, int segment_fd, int listen_fd);

} // namespace softhca
