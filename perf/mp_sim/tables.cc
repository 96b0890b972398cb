#include "tables.h"

#include <stdexcept>
#include <string_view>

namespace ucx_mp::sim {

namespace {

std::string name_of(const softhca::FabricImage& image, softhca::EndKind kind, std::uint32_t index) {
    if (kind == softhca::EndKind::sw) return image.sw(index).name;
    return image.node(image.device(image.port(index).device).node).name;
}

void flush(std::ofstream& out, const char* option, const std::string& path) {
    if (!out.flush()) throw std::runtime_error(std::string(option) + " " + path + ": cannot be written");
}

} // namespace

TransferTable::TransferTable(const std::string& path) : out_(path), path_(path) {
    out_ << "run,rank,number,peer,bytes,begin_ns,end_ns\n";
    flush(out_, "--transfers", path_);
}

void TransferTable::add(const std::string& name, const std::vector<Transfer>& transfers) {
    std::vector<unsigned> numbers;
    for (const Transfer& t : transfers) {
        if (t.rank >= numbers.size()) numbers.resize(t.rank + 1);
        out_ << '"' << name << "\"," << t.rank << ',' << numbers[t.rank]++ << ',' << t.peer << ',' << t.bytes << ','
             << t.begin << ',' << t.end << '\n';
    }
    flush(out_, "--transfers", path_);
}

LinkTable::LinkTable(const std::string& path) : out_(path), path_(path) {
    out_ << "run,from,to,bytes,share\n";
    flush(out_, "--links", path_);
}

void LinkTable::begin(softhca::sim::World& world) {
    before_.clear();
    for (std::uint32_t i = 0; i < world.image().links; ++i) before_.push_back(world.link(i).bytes);
    begun_ = world.now();
}

void LinkTable::end(softhca::sim::World& world, const std::string& name) {
    const softhca::FabricImage& image = world.image();
    const double seconds = static_cast<double>(world.now() - begun_) / 1e9;
    for (std::uint32_t i = 0; i < image.links; ++i) {
        const softhca::LinkImage& link = image.link(i);
        const std::uint64_t bytes = world.link(i).bytes - before_[i];
        const double most = static_cast<double>(link.rate) * seconds; // no rate: it carries anything
        out_ << '"' << name << "\"," << name_of(image, link.from_kind, link.from) << ','
             << name_of(image, link.to_kind, link.to) << ',' << bytes << ','
             << (most > 0 ? static_cast<double>(bytes) / most : 0) << '\n';
    }
    flush(out_, "--links", path_);
}

namespace {

// Messages of one source into one process.
struct Ways {
    unsigned dc = 0, dc_ring = 0, rc = 0, rc_ring = 0;
    std::uint64_t switches = 0;

    void add(const channel::ChannelStatistics& from) {
        switches += from.service.switches + from.ring.switches;
        if (from.delivered == 0) return; // it sends nothing
        const bool ring = from.ring.in == std::string_view("open");
        bool has_rc = false;
        for (const channel::PathStatistics& path : from.paths)
            has_rc |= path.kind == path::Kind::rc && path.state == schedule::PathState::up;
        ++(has_rc ? ring ? rc_ring : rc : ring ? dc_ring : dc);
    }
};

} // namespace

KindTable::KindTable(const std::string& path, Nanos every) : out_(path), path_(path), every_(every) {
    out_ << "run,us,dc,dc_ring,rc,rc_ring,switches,dc_0,dc_ring_0,rc_0,rc_ring_0,sent_0,received_0,pause_us\n";
    flush(out_, "--kinds", path_);
}

void KindTable::begin(Cluster& cluster, Run& run, const std::string& name) {
    name_ = name;
    begun_ = cluster.world.now();
    over_ = std::make_shared<bool>(false);
    (void)run.longest_pause();
    look(cluster, run);
}

void KindTable::end() {
    *over_ = true;
    flush(out_, "--kinds", path_);
}

void KindTable::look(Cluster& cluster, Run& run) {
    Ways all, first;
    std::uint64_t sent = 0, received = 0;
    channel::Interface::Statistics statistics;
    for (unsigned i = 0; i < cluster.size(); ++i) {
        cluster.node(i).iface().statistics(statistics);
        for (const channel::ChannelStatistics& from : statistics.channels) {
            all.add(from);
            if (i != 0) continue;
            first.add(from);
            sent += from.sent;
            received += from.delivered;
        }
    }
    out_ << '"' << name_ << "\"," << static_cast<double>(cluster.world.now() - begun_) / 1e3 << ',' << all.dc << ','
         << all.dc_ring << ',' << all.rc << ',' << all.rc_ring << ',' << all.switches << ',' << first.dc << ','
         << first.dc_ring << ',' << first.rc << ',' << first.rc_ring << ',' << sent << ',' << received << ','
         << static_cast<double>(run.longest_pause()) / 1e3 << '\n';
    (void)cluster.world.at(cluster.world.now() + every_, [this, &cluster, &run, over = over_] {
        if (!*over) look(cluster, run);
    });
}

} // namespace ucx_mp::sim
