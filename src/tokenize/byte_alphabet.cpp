#include "src/tokenize/byte_alphabet.h"

#include "src/core/utf8.h"

namespace coda {
namespace {

constexpr char32_t kFirstStandIn = 0x100;

constexpr bool stands_for_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_alphabet() {
    std::array<char32_t, 256> alphabet{};
    char32_t next = kFirstStandIn;
    for (unsigned byte = 0; byte < 256; ++byte) alphabet[byte] = stands_for_itself(byte) ? byte : next++;
    return alphabet;
}

constexpr std::array<char32_t, 256> kAlphabet = make_alphabet();
constexpr std::size_t kCharacters = kFirstStandIn + 68;

constexpr std::array<int, kCharacters> make_bytes() {
    std::array<int, kCharacters> bytes{};
    for (int& byte : bytes) byte = -1;
    for (unsigned byte = 0; byte < 256; ++byte) bytes[kAlphabet[byte]] = static_cast<int>(byte);
    return bytes;
}

constexpr std::array<int, kCharacters> kBytes = make_bytes();

}  // namespace

const std::array<char32_t, 256>& byte_alphabet() { return kAlphabet; }

std::optional<std::string> bytes_of_token(std::string_view token) {
    std::string bytes;
    while (!token.empty()) {
        const CodePoint character = decode_utf8(token);
        if (character.value >= kCharacters || kBytes[character.value] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(kBytes[character.value]));
        token.remove_prefix(character.length);
    }
    return bytes;
}

}  // namespace coda
