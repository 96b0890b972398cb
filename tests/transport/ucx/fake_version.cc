// Preloaded before libucp: says that it is UCX 1.$FAKE_UCX_MINOR.
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) void ucp_get_version(unsigned* major, unsigned* minor,
                                                                       unsigned* release) {
    const char* const fake = std::getenv("FAKE_UCX_MINOR");
    *major = 1;
    *minor = fake ? static_cast<unsigned>(std::atoi(fake)) : 0;
    *release = 0;
}
