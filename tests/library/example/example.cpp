// Replays a trace and says what a GPU must hold: example TRACE.h5 JOB.yaml
#include <iostream>
#include <memory>
#include <spillway/spillway.h>
#include <stdexcept>
#include <string>
#include <vector>

using answer = std::unique_ptr<spw_answer, decltype(&spw_answer_destroy)>;

static answer ask(const char *command, const std::vector<const char *> &arguments) {
    spw_answer *out = nullptr;
    if (spw_ask(command, arguments.size(), arguments.data(), &out) != SPW_CODE_OK)
        throw std::runtime_error(spw_last_error());
    return {out, spw_answer_destroy};
}

int main(int count, char **word) try {
    if (count != 3) return 2;
    const answer replay = ask("replay", {word[1], "--job", word[2], "--scheme", "gmm", "--scheme", "ring"});
    std::size_t rows = 0;
    spw_answer_size(replay.get(), "rows", &rows);
    for (std::size_t i = 0; i < rows; i++) {
        double bytes = 0;
        const std::string path = "rows." + std::to_string(i) + ".memory.peak_bytes";
        if (spw_answer_real(replay.get(), path.c_str(), &bytes) == SPW_CODE_OK)
            std::cout << bytes / (1 << 30) << " GiB\n";
    }
} catch (const std::exception &error) {
    std::cerr << "spillway: " << error.what() << "\n";
    return 1;
}
