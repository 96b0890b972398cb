// The C header: an engine over UCT. No exception passes it (no_memory.h).
#include "pml_glue/core/mp_core.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>

#include "pml_glue/core/async/processors.h"
#include "pml_glue/core/core.h"
#include "pml_glue/core/no_memory.h"

using namespace ucx_mp::glue;

namespace {

Peer& of(mp_peer_t* peer) { return *reinterpret_cast<Peer*>(peer); }
Envelope of(mp_envelope_t envelope) { return {envelope.context, envelope.source, envelope.tag}; }
Hint of(mp_hint_t hint) { return static_cast<Hint>(hint); }
constexpr std::uint64_t kPatience = 2'000'000'000; // ns; a peer that takes nothing for so long is gone
static_assert(MP_ANY_SOURCE == kAnySource && MP_ANY_TAG == kAnyTag);

void tell(const StoredEntry& message, mp_status_t* status) {
    *status = {.source = message.envelope.source, .tag = message.envelope.tag, .error = MP_OK, .bytes = message.bytes};
}

void tell_kept(void* core) {
    or_end("telling what the thread has done", [&] { static_cast<mp_core*>(core)->engine->tell_kept(); });
}

async::Work work_of(mp_core& core, const mp_thread_config_t& config) {
    return {.progress =
                [&core] {
                    return or_end("making progress in the thread", [&] {
                        core.engine->kept().in_thread = true;
                        const unsigned found =
                            core.engine->progress_in_thread() + core.windows->progress() + core.groups->progress();
                        core.engine->kept().in_thread = false;
                        return found;
                    });
                },
            .arm = [&core] { return core.port.arm(); },
            .stops = [&core] { return core.engine->stops_thread(); },
            .all_wake = [&core] { return core.port.all_wake(); },
            .fds = core.port.event_descriptors(),
            .times = config.spare ? async::kSpare : async::kShared,
            .try_lock = config.try_lock,
            .unlock = config.unlock};
}

std::string statistics_of(const async::Thread& thread) {
    const async::Counts& counts = thread.counts();
    std::ostringstream text;
    text << "; thread" << (thread.spare() ? "" : " without a processor") << ": looks " << counts.looks << ", turns "
         << counts.turns << " (refused " << counts.refused << "), found " << counts.found << ", "
         << static_cast<double>(thread.processor_time()) / 1e6 << " ms";
    return text.str();
}

} // namespace

extern "C" {

mp_core_t* mp_core_open(const mp_config_t* config, const mp_hooks_t* hooks, char* error, size_t error_size) {
    std::string why = "no memory";
    try {
        auto core = std::make_unique<mp_core>();
        if (core->port.open({.transports = config->transports, .local = config->local}, why)) {
            core->engine.emplace(core->port, *config, *hooks);
            core->windows.emplace(*core->engine, core->port, *hooks);
            core->groups.emplace(*core->engine, core->port, *hooks);
            return core.release();
        }
    } catch (const std::exception& exception) { why = exception.what(); }
    std::snprintf(error, error_size, "%s", why.c_str());
    return nullptr;
}

bool mp_core_start_thread(mp_core_t* core, const mp_thread_config_t* config, char* error, size_t error_size) {
    std::string why = "no memory";
    try {
        config->turn->tell = tell_kept;
        config->turn->core = core;
        core->thread.emplace(*config->turn, work_of(*core, *config));
        if (core->thread->start(why)) return true;
    } catch (const std::exception& exception) { why = exception.what(); }
    core->thread.reset();
    std::snprintf(error, error_size, "%s", why.c_str());
    return false;
}

void mp_core_stop_thread(mp_core_t* core) {
    if (core->thread) core->thread->stop();
}

bool mp_core_thread_is_spare(unsigned ranks, unsigned threads, char* why, size_t why_size) {
    std::string text;
    bool spare = false;
    try {
        spare = async::is_spare(async::processors(), ranks, threads, text);
    } catch (const std::exception& exception) { text = exception.what(); }
    std::snprintf(why, why_size, "%s", text.c_str());
    return spare;
}

void mp_core_close(mp_core_t* core) {
    mp_core_stop_thread(core);
    core->engine->tell_kept();
    // Messages that wait for room, or to leave with others: another process may need them.
    core->engine->leave();
    const std::uint64_t begin = core->port.now();
    do core->engine->progress();
    while (core->engine->waits() && core->port.now() - begin < kPatience);
    core->port.drain();
    delete core;
}

void* mp_core_address(mp_core_t* core, size_t* length) {
    const auto address = core->port.address();
    void* const out = std::malloc(address.size());
    if (out) std::memcpy(out, address.data(), address.size());
    *length = address.size();
    return out;
}

mp_peer_t* mp_core_peer(mp_core_t* core, uint64_t process) {
    return or_end("connecting", [&] { return reinterpret_cast<mp_peer_t*>(core->engine->peer(process)); });
}

unsigned mp_core_progress(mp_core_t* core) {
    return or_end("making progress", [&] {
        const unsigned found = core->engine->progress(); // before windows, which look for missing messages
        return found + core->windows->progress() + core->groups->progress();
    });
}

bool mp_core_send_now(mp_core_t* core, mp_peer_t* peer, uint64_t compact, const void* data, size_t bytes, bool waits) {
    return core->engine->send_now(of(peer), compact, data, bytes, waits);
}

bool mp_core_hold(mp_core_t* core, mp_request_storage_t* request, mp_peer_t* peer, uint64_t compact, const void* data,
                  size_t bytes) {
    return or_end("sending", [&] { return core->engine->hold(of(peer), compact, data, bytes, Request::of(*request)); });
}

void mp_core_send(mp_core_t* core, mp_request_storage_t* request, mp_peer_t* peer, mp_envelope_t envelope,
                  mp_data_t data, bool synchronous, mp_hint_t hint) {
    or_end("sending",
           [&] { core->engine->send(Request::of(*request), of(peer), of(envelope), data, synchronous, of(hint)); });
}

void mp_core_receive(mp_core_t* core, mp_request_storage_t* request, mp_envelope_t pattern, mp_data_t data,
                     mp_hint_t hint) {
    or_end("receiving", [&] { core->engine->receive(Request::of(*request), of(pattern), data, of(hint)); });
}

bool mp_core_receive_now(mp_core_t* core, mp_envelope_t pattern, void* data, size_t bytes, mp_status_t* status) {
    return core->engine->receive_now(of(pattern), data, bytes, *status);
}

bool mp_core_cancel(mp_core_t* core, mp_request_storage_t* request) {
    return or_end("cancelling", [&] { return core->engine->cancel(Request::of(*request)); });
}

bool mp_core_probe(mp_core_t* core, mp_envelope_t pattern, mp_status_t* status) {
    const StoredEntry* const message = core->engine->find(of(pattern));
    if (message) tell(*message, status);
    return message;
}

mp_message_t* mp_core_mprobe(mp_core_t* core, mp_envelope_t pattern, mp_status_t* status) {
    StoredEntry* const message = core->engine->find(of(pattern));
    if (!message) return nullptr;
    tell(*message, status);
    core->engine->take(*message);
    return reinterpret_cast<mp_message_t*>(message);
}

void mp_core_receive_message(mp_core_t* core, mp_request_storage_t* request, mp_message_t* message, mp_data_t data,
                             mp_hint_t hint) {
    or_end("receiving", [&] {
        core->engine->receive_message(Request::of(*request), *reinterpret_cast<StoredEntry*>(message), data, of(hint));
    });
}

void mp_core_drop(mp_core_t* core, uint32_t context) {
    or_end("dropping a communicator", [&] {
        core->engine->drop(context);
        core->groups->drop(context);
    });
}

bool mp_core_named(mp_core_t* core, uint64_t process, bool comes) {
    try {
        core->engine->named(process, comes);
    } catch (const std::exception&) { return false; }
    return true;
}

bool mp_core_source_failed(mp_core_t* core, mp_envelope_t pattern) {
    return or_end("looking for a source", [&] { return core->engine->source_failed(of(pattern)); });
}

void mp_core_statistics(mp_core_t* core, char* text, size_t size) {
    std::snprintf(text, size, "%s",
                  (core->engine->statistics() + core->windows->statistics() + core->groups->statistics() +
                   (core->thread ? statistics_of(*core->thread) : std::string()))
                      .c_str());
}

} // extern "C"
