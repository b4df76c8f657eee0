#include "src/generate/program/lines.h"

#include <unistd.h>

#include <string>
#include <vector>

#include "kernels/core/error.h"
#include "src/core/interrupt.h"
#include "src/io/files.h"
#include "tests/catch.h"
#include "tests/io/scratch_folder.h"

using namespace coda;

namespace {

/// A pipe in place of standard input, until the end of the test.
class PipedInput {
  public:
    PipedInput() : before_(::dup(STDIN_FILENO)) {
        REQUIRE(::pipe(ends_) == 0);
        REQUIRE(::dup2(ends_[0], STDIN_FILENO) == STDIN_FILENO);
        ::close(ends_[0]);
    }
    ~PipedInput() {
        close();
        ::dup2(before_, STDIN_FILENO);
        ::close(before_);
    }
    void write(const std::string& text) {
        REQUIRE(::write(ends_[1], text.data(), text.size()) == ssize_t(text.size()));
    }
    void close() {
        if (ends_[1] >= 0) ::close(ends_[1]);
        ends_[1] = -1;
    }

  private:
    int before_, ends_[2] = {-1, -1};
};

}  // namespace

TEST_CASE("lines of a file, with their numbers; blank ones are passed over") {
    const ScratchFolder folder;
    const std::string path = (folder.path() / "p.jsonl").string();
    FileWriter writer(path, FileWriter::Mode::create);
    const std::string big(200000, 'x');
    writer.write(bytes_of("one\n\n \t\r\ntwo\r\n" + big + "\nlast"));
    writer.finish();
    LineReader lines(path);
    CHECK(lines.name() == path);
    CHECK(lines.next(true) == "one");
    CHECK(lines.number() == 1);
    CHECK(lines.next(false) == "two\r");
    CHECK(lines.number() == 4);
    CHECK(lines.next(true) == big);
    CHECK(lines.next(true) == "last");
    CHECK(lines.number() == 6);
    CHECK_FALSE(lines.next(true));
    CHECK_FALSE(lines.next(false));
    CHECK_THROWS_AS(LineReader(folder.path().string()), Error);
    CHECK_THROWS_WITH(LineReader(path + ".no"), Catch::Contains(path + ".no: No such file"));
}

TEST_CASE("standard input gives a line when it is whole, and nothing meanwhile") {
    watch_interrupts();
    PipedInput input;
    LineReader lines("-");
    CHECK(lines.name() == "standard input");
    CHECK_FALSE(lines.next(false));
    input.write("on");
    CHECK_FALSE(lines.next(false));
    input.write("e\ntwo\nthr");
    CHECK(lines.next(false) == "one");
    CHECK(lines.next(true) == "two");
    CHECK_FALSE(lines.next(false));
    input.write("ee");
    input.close();
    CHECK(lines.next(true) == "three");
    CHECK_FALSE(lines.next(true));
}

TEST_CASE("all that is left of standard input") {
    watch_interrupts();
    PipedInput input;
    LineReader lines("-");
    input.write("one\ntwo\n\n thr");
    CHECK(lines.next(true) == "one");
    input.write("ee\n");
    input.close();
    CHECK(lines.rest() == "two\n\n three\n");
    CHECK(lines.rest().empty());
}
