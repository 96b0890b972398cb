#include "fabric/network_engines.h"

namespace softhca {

SendEngine& SendEngines::of(Source& s) {
    if (s.net_state) return *static_cast<SendEngine*>(s.net_state);
    const uint32_t engines = image_.device(image_.port(s.source_port).device).limits.engines_per_port;
    std::vector<SendEngine*>& bound = bound_[s.source_port];
    if (bound.empty()) bound.resize(engines);
    SendEngine** const cell = engines != 0 ? &bound[s.source_qpn % engines] : nullptr;
    SendEngine* e = cell ? *cell : nullptr;
    if (!e) {
        e = free_;
        if (e)
            free_ = e->next;
        else
            e = all_.emplace_back(std::make_unique<SendEngine>()).get();
        *e = {.port = s.source_port, .own = engines == 0};
        if (cell) *cell = e;
    }
    s.net_state = e;
    return *e;
}

bool SendEngines::leave(SendEngine& e, Source& s) {
    s.net_ready = false;
    s.net_state = nullptr;
    if (!e.own) return false;
    e.next = free_;
    free_ = &e;
    return true;
}

} // namespace softhca
