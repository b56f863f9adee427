// Hold a rotation against the test vectors: g++ -O2 -std=c++17 check.cpp && ./a.out vectors/core.txt
// Replace `rotate` by a call of yours. It turns the pairs of channels of one token of one head.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>
using Numbers = std::vector<double>;

Numbers rotate(const Numbers& x, double position, const Numbers& theta, bool neighbours, int start) {
    Numbers y = x;
    for (size_t j = 0; j < theta.size(); ++j) {
        size_t a = start + (neighbours ? 2 * j : j), b = neighbours ? a + 1 : a + theta.size();
        double c = std::cos(position * theta[j]), s = std::sin(position * theta[j]);
        y[a] = x[a] * c - x[b] * s;
        y[b] = x[b] * c + x[a] * s;
    }
    return y;
}

int main(int, char** arguments) {
    std::ifstream file(arguments[1]);
    std::map<std::string, std::vector<std::string>> one;
    int cases = 0, wrong = 0;
    auto numbers = [&](const char* name) {
        Numbers all;
        for (auto& word : one[name]) all.push_back(std::strtod(word.c_str(), nullptr));  // reads hexadecimal
        return all;
    };
    for (std::string line, name, word; std::getline(file, line);) {
        std::istringstream words(line);
        words >> name;
        for (one[name].clear(); words >> word;) one[name].push_back(word);
        if (name != "rotated_q") continue;  // the last line of a case
        Numbers theta = numbers("theta"), q = numbers("q"), right = numbers("rotated_q"), at = numbers("positions");
        size_t dim = numbers("sizes")[3];
        double off = 0;
        for (size_t n = 0; n < at.size(); ++n) {  // one for each text, head and token
            Numbers x(q.begin() + n * dim, q.begin() + (n + 1) * dim);
            Numbers y = rotate(x, at[n], theta, one["layout"][0] == "interleaved", numbers("start")[0]);
            for (size_t c = 0; c < dim; ++c) off = std::max(off, std::abs(y[c] - right[n * dim + c]));
        }
        ++cases;
        if (!(off <= numbers("tolerance")[0])) ++wrong, std::printf("%s: off by %g\n", one["case"][0].c_str(), off);
    }
    std::printf("%d of %d cases pass\n", cases - wrong, cases);
    return cases == 0 || wrong > 0;
}
