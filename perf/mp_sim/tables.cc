#include "tables.h"

#include <stdexcept>

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

} // namespace ucx_mp::sim
