// Completion channels and asynchronous events: reading, acknowledging, and what makes destroying an object safe:
// events handed out are counted, destroy waits for their acknowledgment; events still queued are taken out.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "verbs/face.h"

namespace softhca::face {
namespace {

// Waits as a blocking read of `fd` would. false: errno is EAGAIN (non-blocking fd) or EINTR.
bool wait_readable(int fd) {
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0) return false;
    if (flags & O_NONBLOCK) {
        errno = EAGAIN;
        return false;
    }
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&p, 1, -1) < 0) return false;
    if (p.revents & (POLLNVAL | POLLERR)) {
        errno = EBADF;
        return false;
    }
    return true;
}

// One message if there is one. The fd is a pipe whose mode is the program's business, and whose only readers are here,
// under a mutex: what poll() has seen is still there.
template <class Message> bool read_ready(int fd, Message& message) {
    pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLIN)) return false;
    return read(fd, &message, sizeof message) == static_cast<ssize_t>(sizeof message); // written in one piece
}

// Next message of `fd` that `accept` takes, under `mutex`; others are dropped.
template <class Message, class Accept> bool take(int fd, std::mutex& mutex, Message& message, Accept accept) {
    for (;;) {
        {
            std::lock_guard guard(mutex);
            while (read_ready(fd, message))
                if (accept(message)) return true;
        }
        if (!wait_readable(fd)) return false;
    }
}

// Takes messages that `doomed` names out of a channel, keeps the order of the others. Under the channel's mutex.
template <class Message, class Doomed> void purge(const Channel& wire, Doomed doomed) {
    std::vector<Message> kept;
    Message m;
    while (read_ready(wire.rx, m))
        if (!doomed(m)) kept.push_back(m);
    for (const Message& k : kept)
        if (write(wire.tx, &k, sizeof k) < 0) break;
}

enum class Element { cq, qp, srq, port };

Element element_of(uint32_t type) {
    switch (type) {
    case IBV_EVENT_CQ_ERR:
        return Element::cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return Element::qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return Element::srq;
    default:
        return Element::port;
    }
}

void count(pthread_mutex_t& mutex, uint32_t& reported) {
    pthread_mutex_lock(&mutex);
    ++reported;
    pthread_mutex_unlock(&mutex);
}

void acknowledge(pthread_mutex_t& mutex, pthread_cond_t& cond, uint32_t& completed, uint32_t n) {
    pthread_mutex_lock(&mutex);
    completed += n;
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&mutex);
}

} // namespace

void init_waiter(pthread_mutex_t& mutex, pthread_cond_t& cond) {
    pthread_mutex_init(&mutex, nullptr);
    pthread_cond_init(&cond, nullptr);
}

void await_acks(pthread_mutex_t& mutex, pthread_cond_t& cond, const uint32_t& completed, const uint32_t& reported) {
    pthread_mutex_lock(&mutex);
    while (completed != reported) pthread_cond_wait(&cond, &mutex);
    pthread_mutex_unlock(&mutex);
}

void add_event_target(Context& c, const void* object) {
    std::lock_guard guard(c.mutex);
    c.live.insert(reinterpret_cast<uint64_t>(object));
}

void remove_event_target(Context& c, const void* object) {
    const auto element = reinterpret_cast<uint64_t>(object);
    std::lock_guard guard(c.mutex);
    c.live.erase(element);
    purge<AsyncMessage>(
        c.async, [&](const AsyncMessage& m) { return element_of(m.type) != Element::port && m.element == element; });
}

void remove_channel_target(CompChannel& channel, const Cq* cq) {
    const auto element = reinterpret_cast<uint64_t>(cq);
    std::lock_guard guard(channel.mutex);
    channel.live.erase(element);
    purge<uint64_t>(channel.wire, [&](uint64_t m) { return m == element; });
}

} // namespace softhca::face

using namespace softhca;
using namespace softhca::face;

VERBS_API ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    auto* c = new (std::nothrow) CompChannel{};
    if (!c) return fail_null(ENOMEM);
    if (!open_channel(c->wire)) {
        delete c;
        return nullptr;
    }
    c->channel.context = context;
    c->channel.fd = c->wire.rx;
    return &c->channel;
}

VERBS_API int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
    auto* c = reinterpret_cast<CompChannel*>(channel);
    {
        std::lock_guard guard(c->mutex);
        if (channel->refcnt) return fail(EBUSY);
    }
    close_channel(c->wire);
    delete c;
    return 0;
}

VERBS_API int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    auto* c = reinterpret_cast<CompChannel*>(channel);
    uint64_t message;
    const bool ok = take(c->wire.rx, c->mutex, message, [&](uint64_t m) {
        if (!c->live.contains(m)) return false;
        Cq* target = reinterpret_cast<Cq*>(m);
        count(target->ex.mutex, target->comp_events_reported);
        return true;
    });
    if (!ok) return -1;
    *cq = reinterpret_cast<ibv_cq*>(message);
    *cq_context = (*cq)->cq_context;
    return 0;
}

VERBS_API void ibv_ack_cq_events(ibv_cq* cq, unsigned n) {
    acknowledge(cq->mutex, cq->cond, cq->comp_events_completed, n);
}

VERBS_API int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    Context& c = *context_of(context);
    AsyncMessage message;
    const bool ok = take(c.async.rx, c.mutex, message, [&](const AsyncMessage& m) {
        const Element kind = element_of(m.type);
        if (kind == Element::port) return true;
        if (!c.live.contains(m.element)) return false;
        void* object = reinterpret_cast<void*>(m.element);
        if (kind == Element::cq)
            count(static_cast<Cq*>(object)->ex.mutex, static_cast<Cq*>(object)->async_events_reported);
        if (kind == Element::qp) count(static_cast<Qp*>(object)->qp.mutex, static_cast<Qp*>(object)->events_reported);
        if (kind == Element::srq)
            count(static_cast<Srq*>(object)->srq.mutex, static_cast<Srq*>(object)->events_reported);
        return true;
    });
    if (!ok) return -1;
    (void)told_dead(c); // whatever the event is: the program may find out by itself now
    std::memset(event, 0, sizeof *event);
    event->event_type = static_cast<ibv_event_type>(message.type);
    switch (element_of(message.type)) {
    case Element::cq:
        event->element.cq = reinterpret_cast<ibv_cq*>(message.element);
        break;
    case Element::qp:
        event->element.qp = reinterpret_cast<ibv_qp*>(message.element);
        break;
    case Element::srq:
        event->element.srq = reinterpret_cast<ibv_srq*>(message.element);
        break;
    case Element::port:
        event->element.port_num = static_cast<int>(message.port);
        break;
    }
    return 0;
}

VERBS_API void ibv_ack_async_event(ibv_async_event* event) {
    switch (element_of(event->event_type)) {
    case Element::cq: {
        ibv_cq* cq = event->element.cq;
        return acknowledge(cq->mutex, cq->cond, cq->async_events_completed, 1);
    }
    case Element::qp: {
        ibv_qp* qp = event->element.qp;
        return acknowledge(qp->mutex, qp->cond, qp->events_completed, 1);
    }
    case Element::srq: {
        ibv_srq* srq = event->element.srq;
        return acknowledge(srq->mutex, srq->cond, srq->events_completed, 1);
    }
    case Element::port:
        return;
    }
}
