#include "tests/apps/training_folder.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace zinc::apps {

TrainingFolder::TrainingFolder() {
  write("ds.json", kTinyConfig);
  write("model.json", kTinyGpt2);
  std::string text;
  while (text.size() < 4000) text += "And the evening and the morning were the first day.\n";
  write("text.txt", text.substr(0, 4000));
}

std::vector<std::string> TrainingFolder::train(const std::vector<std::string>& changes) const {
  std::vector<std::pair<std::string, std::string>> options = {{"--config", *this / "ds.json"},
                                                              {"--model", *this / "model.json"},
                                                              {"--data", *this / "text.txt"},
                                                              {"--steps", "2"},
                                                              {"--out", out()}};
  std::vector<std::string> words = {"train"};
  std::vector<std::string> added;
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto option = std::find_if(options.begin(), options.end(),
                                     [&](const auto& o) { return o.first == changes[i]; });
    if (option == options.end()) {
      added.push_back(changes[i]);
    } else {
      option->second = changes.at(++i);
    }
  }
  for (const auto& [name, value] : options) words.insert(words.end(), {name, value});
  words.insert(words.end(), added.begin(), added.end());
  return words;
}

std::vector<std::string> TrainingFolder::tree() const {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
    paths.push_back(std::filesystem::relative(entry.path(), path()).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> TrainingFolder::unfinished() const {
  std::vector<std::string> found;
  for (const std::string& path : tree()) {
    if (path.find(".tmp-") != std::string::npos) found.push_back(path);
  }
  return found;
}

std::string safetensors_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>((uint64_t{header.size()} >> (8 * i)) & 0xFF);
  }
  return bytes + header + std::string(data_bytes, '\0');
}

}  // namespace zinc::apps
