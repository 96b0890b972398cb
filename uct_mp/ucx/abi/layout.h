// Everything that depends on the version of UCX: its tables of functions, its tables of variables, and
// functions whose signature has changed. The classes Md, Iface and Ep beside this folder know no version.
//
// One library serves all versions from 1.13 to 1.22: face.h is compiled once for each of their layouts (v1_NN.h), and
// choose() takes the one that this process has.
#pragma once

#include <string>

#include "uct_mp/ucx/compat.h"

namespace ucx_mp::face {
class Md;
struct MdOptions;
struct IfaceOptions;
} // namespace ucx_mp::face

namespace ucx_mp::face::abi {

inline constexpr char kComponent[] = "mp";
struct CacheOptionsStorage; // of the registration cache, as UCX has parsed them

extern uct_iface_ops_t marked_operations; // interface_operations, each with a mark (Iface::turn); of any layout

struct Layout {
    unsigned minor;                // of UCX 1.<minor>
    std::size_t list_in_component; // offset of UCX's list of components in a component, bytes

    // Registers the component "mp" with its transports and variables, once.
    void (*register_component)();

    uct_iface_ops_t* interface_operations;
    void* internal_operations;
    ucs_async_context_t* (*async_of)(const IfaceBase& iface);

    // A registration cache whose regions are `Region` objects (md.h), made and ended by `md`.
    ucs_status_t (*make_cache)(Md& md, const CacheOptionsStorage& options, void** out);
    double (*cache_overhead)(const CacheOptionsStorage& options);       // s, of finding a region in it
    std::size_t (*cache_alignment)(const CacheOptionsStorage& options); // bytes, of its regions
    // `flags`: those of uct_md_mem_reg(), which make_region() gets.
    ucs_status_t (*find_in_cache)(void* cache, void* address, std::size_t length, std::size_t alignment, unsigned flags,
                                  void** out);
};

// At load, before anything is registered: finds the layout of the libraries of this process. Otherwise null and
// one line, which says what was found and what is known: registered anyway, the first interface would crash.
[[nodiscard]] const Layout* choose(std::string& error);
// The layout that was chosen.
[[nodiscard]] const Layout& layout();

// Another copy of the library has registered: it may be preloaded from one place and linked from another.
[[nodiscard]] bool registered_already();

// A symbol of UCX that not every version has; null: this one does not.
[[nodiscard]] void* symbol(const char* name);

// Our options among those that UCX has parsed.
[[nodiscard]] const MdOptions& options_of(const uct_md_config_t& config);
[[nodiscard]] const IfaceOptions& options_of(const uct_iface_config_t& config);

} // namespace ucx_mp::face::abi
