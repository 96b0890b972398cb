#include "session/record.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "fabric/names.h"

namespace softhca {

Carriers::Carriers(Segment& seg) : seg_(seg), links_(seg.img().links) {
    const FabricImage& image = seg.img();
    for (uint32_t l = 0; l < image.links; ++l) names_.push_back(link_name(image, l));
    for (uint32_t p = 0; p < image.ports; ++p) {
        if (image.port(p).link != kNone || !image.port(p).cabled) continue;
        ports_.push_back(p);
        names_.push_back(port_name(image, p) + " tx");
        names_.push_back(port_name(image, p) + " rx");
    }
}

uint64_t Carriers::rate(size_t i) {
    const bool link = i < links_;
    const FaultKnobs& k =
        link ? seg_.link(static_cast<uint32_t>(i)).faults : seg_.port(ports_[(i - links_) / 2]).faults;
    if (const uint64_t rate = k.rate_override.load()) return rate;
    return link ? seg_.img().link(static_cast<uint32_t>(i)).rate : 0;
}

LinkCounters Carriers::read(size_t i) {
    if (i < links_) {
        const LinkState& l = seg_.link(static_cast<uint32_t>(i));
        return {l.bytes, l.packets, l.drops + l.corrupted, l.wait_ns};
    }
    const PortState& p = seg_.port(ports_[(i - links_) / 2]);
    if ((i - links_) % 2 == 0) return {p.tx_bytes, p.tx_packets, 0, 0};
    return {p.rx_bytes, p.rx_packets, p.drops + p.corrupted, 0};
}

bool Carriers::up(size_t i) {
    return i < links_ ? seg_.link(static_cast<uint32_t>(i)).up.load() : seg_.port(ports_[(i - links_) / 2]).up.load();
}

Recorder::Recorder(Segment& seg, const std::string& file)
    : carriers_(seg), out_(std::fopen(file.c_str(), "we")), start_(monotonic_now()) {
    if (!out_) throw std::runtime_error(file + ": " + std::strerror(errno));
    std::fprintf(out_, "time_s,link,rate,bytes,packets,drops,wait_ns\n");
    sample();
}

Recorder::~Recorder() { std::fclose(out_); }

void Recorder::sample() {
    const bool first = last_.empty();
    last_.resize(carriers_.count());
    const double time = static_cast<double>(monotonic_now() - start_) / 1e9;
    for (size_t i = 0; i < carriers_.count(); ++i) {
        const LinkCounters now = carriers_.read(i);
        if (!first && now == last_[i]) continue;
        last_[i] = now;
        std::fprintf(out_, "%.6f,%s,%llu,%llu,%llu,%llu,%llu\n", first ? 0.0 : time, carriers_.name(i).c_str(),
                     static_cast<unsigned long long>(carriers_.rate(i)), static_cast<unsigned long long>(now.bytes),
                     static_cast<unsigned long long>(now.packets), static_cast<unsigned long long>(now.drops),
                     static_cast<unsigned long long>(now.wait_ns));
    }
}

} // namespace softhca
