#include "src/core/interrupt.h"

#include <csignal>

#include "tests/catch.h"

using namespace coda;

namespace {

/// Gives the signals back what they did, whatever a test has made of them.
class Handlers {
  public:
    Handlers() {
        for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
    }
    ~Handlers() {
        for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    }
    Handlers(const Handlers&) = delete;
    Handlers& operator=(const Handlers&) = delete;

  private:
    static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    struct sigaction before_[4]{};
};

}  // namespace

TEST_CASE("each of three signals asks a run to stop") {
    const Handlers restored;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        watch_interrupts();
        CHECK_FALSE(interrupted());
        std::raise(signal);
        CHECK(interrupted());
        CHECK(interrupted());
    }
}

TEST_CASE("a second SIGHUP does not end the process, for a closing terminal sends two") {
    const Handlers restored;
    watch_interrupts();
    std::raise(SIGHUP);
    std::raise(SIGHUP);
    CHECK(interrupted());
}

TEST_CASE("a SIGHUP that is ignored stays ignored") {
    const Handlers restored;
    std::signal(SIGHUP, SIG_IGN);
    watch_interrupts();
    std::raise(SIGHUP);
    CHECK_FALSE(interrupted());
}

TEST_CASE("a request to save is seen once, and stops nothing") {
    const Handlers restored;
    watch_save_requests();
    watch_interrupts();
    CHECK_FALSE(save_requested());
    std::raise(SIGUSR1);
    std::raise(SIGUSR1);
    CHECK(save_requested());
    CHECK_FALSE(save_requested());
    CHECK_FALSE(interrupted());
    std::raise(SIGUSR1);
    CHECK(save_requested());
}
