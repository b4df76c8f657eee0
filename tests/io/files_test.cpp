#include "src/io/files.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/io/faults.h"
#include "tests/io/test_files.h"

using namespace coda;
using Catch::Contains;
namespace fs = std::filesystem;

TEST_CASE("a reader has the file's bytes, as many as there were when it was opened") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    put(folder / "data", std::string_view("a\0b", 3));
    put(folder / "empty", "");
    FileReader file(folder / "data");
    REQUIRE(file.bytes() == 3);
    std::array<std::byte, 2> part{};
    file.read_at(1, part);
    CHECK(part[1] == std::byte{'b'});
    CHECK(FileReader(folder / "empty").bytes() == 0);
    CHECK(read_file(folder / "data") == std::string("a\0b", 3));

    const FileReader moved = std::move(file);
    moved.read_at(0, part);
    CHECK(part[0] == std::byte{'a'});
    fs::resize_file(folder / "data", 1);
    CHECK_THROWS_WITH(moved.read_at(0, part), Contains("ends at byte 1 and had 3 bytes") && Contains("cut short"));
}

TEST_CASE("more files than may be open are read, and one that was replaced is named") {
    const ScratchFolder scratch;
    const auto path = [&](int i) { return scratch.path() / text("file", i); };
    const auto descriptors = [] {
        return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
    };
    const auto before = descriptors();
    constexpr int kFiles = kMostOpenFiles + 50;
    std::vector<FileReader> readers;
    for (int i = 0; i < kFiles; ++i) {
        put(path(i), text("content of ", i));
        readers.emplace_back(path(i));
    }
    CHECK(descriptors() - before <= kMostOpenFiles);
    const auto reads = [&](int i) {
        const std::string expected = text("content of ", i);
        std::string found(expected.size(), ' ');
        const FileReader& reader = readers[static_cast<std::size_t>(i)];
        reader.read_at(0, std::as_writable_bytes(std::span(found)));
        return found == expected && reader.bytes() == static_cast<std::int64_t>(expected.size());
    };
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 2 * kFiles; ++i) wrong += reads((i * (2 * t + 1)) % kFiles) ? 0 : 1;
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
    CHECK(descriptors() - before <= kMostOpenFiles);

    put(scratch.path() / "other", "content of 0");
    fs::rename(scratch.path() / "other", path(0));
    for (int i = 1; i < kFiles; ++i) CHECK(reads(i));
    CHECK_THROWS_WITH(reads(0), Contains("file0") && Contains("another file has its name"));
    readers.clear();
    CHECK(descriptors() == before);
}

TEST_CASE("what cannot be opened is named") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    CHECK_THROWS_WITH(FileReader{folder / "absent"}, Contains("absent") && Contains("No such file"));
    CHECK_THROWS_WITH(FileReader{folder}, Contains(folder.string()) && Contains("not a regular file"));
}

TEST_CASE("a writer creates, appends and survives short and interrupted writes") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    const fs::path path = folder / "file";
    {
        Faults faults;
        faults.limit_writes(3);
        faults.fail_at(2, EINTR);  // create, write "abc", write interrupted
        FileWriter writer(path, FileWriter::Mode::create);
        writer.write(bytes_of("abcdefgh"));
        writer.finish();
    }
    CHECK(read_file(path) == "abcdefgh");
    CHECK_THROWS_WITH(FileWriter(path, FileWriter::Mode::create), Contains("file: File exists"));

    FileWriter writer(path, FileWriter::Mode::append);
    writer.write(bytes_of("ij"));
    writer.finish();
    CHECK(read_file(path) == "abcdefghij");
}

TEST_CASE("a replaced file is the old or the new one whichever call fails or kills") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    const fs::path path = folder / "file";
    bool failed = true;
    for (int call = 0; failed; ++call) {
        INFO("call " << call);
        put(path, "old");
        {
            Faults faults;
            faults.fail_at(call, ENOSPC);
            try {
                replace_file(path, bytes_of("new one"));
                failed = false;
            } catch (const Error& error) {
                CHECK_THAT(error.what(), Contains(folder.string()) && Contains("No space left on device"));
            }
        }
        const std::string now = read_file(path);
        CHECK((now == "new one" || (failed && now == "old")));
        CHECK_FALSE(fs::exists(folder / "file.new"));

        put(path, "old");
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            Faults faults;
            faults.kill_at(call);
            replace_file(path, bytes_of("new one"));
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) == failed);
        const std::string after = read_file(path);
        CHECK((after == "new one" || (failed && after == "old")));
        REQUIRE(call < 20);
    }
}

TEST_CASE("a real file size limit stops a write with the system's reason") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    put(folder / "file", "old");
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit limit{1000, 1000};
        ::signal(SIGXFSZ, SIG_IGN);
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
        try {
            replace_file(folder / "file", std::vector<std::byte>(2000));
        } catch (const Error& error) {
            const std::string message = error.what();
            ::_exit(message.find("file.new: File too large") != std::string::npos ? 0 : 3);
        }
        ::_exit(4);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(read_file(folder / "file") == "old");
    CHECK_FALSE(fs::exists(folder / "file.new"));
}

TEST_CASE("folders are made with their parents, and a file in the way is named") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    make_folders(folder / "a/b/c");
    make_folders(folder / "a/b/c");
    CHECK(fs::is_directory(folder / "a/b/c"));
    put(folder / "file", "");
    CHECK_THROWS_WITH(make_folders(folder / "file/below"), Contains((folder / "file").string()));
}

TEST_CASE("exchanged folders trade names") {
    const ScratchFolder scratch;
    const fs::path folder = scratch.path();
    make_folders(folder / "one");
    make_folders(folder / "two");
    put(folder / "one/mark", "");
    if (!exchange_paths(folder / "one", folder / "two")) return;  // this file system cannot
    CHECK(fs::exists(folder / "two/mark"));
    CHECK_FALSE(fs::exists(folder / "one/mark"));
    CHECK_THROWS_WITH(exchange_paths(folder / "one", folder / "absent"), Contains("exchange"));
}

TEST_CASE("a file that is cut short while it is read is an error with its name") {
    const ScratchFolder scratch;
    const fs::path path = scratch.path() / "data.bin";
    put(path, std::string(100000, 'x'));
    const FileReader file(path);
    std::vector<std::byte> part(5000);
    file.read_at(90000, part);
    CHECK(part.back() == std::byte{'x'});
    fs::resize_file(path, 93000);
    CHECK_THROWS_WITH(file.read_at(90000, part), Contains("data.bin") && Contains("ends at byte 93000") &&
                                                     Contains("100000 bytes when it was opened"));
    CHECK_THROWS_WITH(FileReader(scratch.path()), Contains("not a regular file"));
    CHECK_THROWS_WITH(FileReader(scratch.path() / "absent"), Contains("absent: No such file"));
}
