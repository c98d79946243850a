// Examples on disk and as datasets, and batches of unequal lengths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/context.h"
#include "core/error.h"
#include "data/collate.h"
#include "data/examples/example_data.h"
#include "data/loader.h"
#include "nn/batch.h"
#include "tests/files/scratch_folder.h"

namespace zinc::data {
namespace example_data_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const text::ByteTokenizer kBytes;

class ExampleDataTest : public testing::Test {
 protected:
  ExampleSettings settings(int64_t max_tokens = 64) const {
    return {.fields = {.prompt = "p", .answer = "a"}, .max_tokens = max_tokens};
  }
  ExampleFileOptions options() const { return {.cache = folder_ / "cache"}; }

  std::shared_ptr<const ExampleFile> make(const std::string& path, const ExampleSettings& made) {
    return std::make_shared<const ExampleFile>(
        ExampleFile::open(make_example_folder(path, &kBytes, made, options()), path));
  }
  // Example i is the prompt "p" and the answer i, of one to five digits.
  ExampleData numbers(int64_t count) {
    std::string content;
    for (int64_t i = 0; i < count; ++i) {
      content += str(R"({"p": "p", "a": ")", i * i * 37 % 100'003, "\"}\n");
    }
    return ExampleData({make(folder_.write("numbers.jsonl", content), settings())});
  }

  files::ScratchFolder folder_;

 private:
  Context context_;
  ContextScope scope_{context_};
};

std::string text_of_tokens(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) text += token < 0 ? '_' : static_cast<char>(token);
  return text;
}

std::vector<std::string> texts_of(const Dataset& data) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < data.num_samples(); ++i) {
    Sample sample;
    data.read(i, sample);
    texts.push_back(text_of_tokens(sample.tokens) + "|" + text_of_tokens(sample.labels));
    EXPECT_EQ(data.length(i), static_cast<int64_t>(sample.tokens.size()));
  }
  return texts;
}

TEST_F(ExampleDataTest, LabelsAreWhatFollows) {
  const std::string path =
      folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n{\"p\": \"\", \"a\": \"xy\"}\n");
  const ExampleData data({make(path, settings())});
  EXPECT_THAT(texts_of(data), ElementsAre("ab\n|_\nc", "\nx|xy"));
  EXPECT_EQ(data.describe(), "a.jsonl, 2 examples");
  EXPECT_EQ(data.fields().lengths, false);
}

TEST_F(ExampleDataTest, LabelsApart_AreThoseThatAreTrained) {
  const std::string path =
      folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n{\"p\": \"x\", \"a\": \"\"}\n");
  ExampleSettings made = settings();
  made.labels = LabelsOf::text;
  const ExampleData data({make(path, made)},
                         {.lengths = true, .labels = LabelsOf::text, .pad_token = 1});
  EXPECT_THAT(texts_of(data), ElementsAre("ab|c"));  // nothing is learned of the other
  EXPECT_EQ(data.fields().lengths, true);
  EXPECT_EQ(data.fields().pad_token, 1);
  EXPECT_THROW(PackedExamples(data, 9), InvalidArgument);
}

// Tokens are drawn as by transformers' DataCollatorForLanguageModeling.
TEST_F(ExampleDataTest, HiddenTokens_AreADrawnShareOfThoseThatMayBe) {
  constexpr int64_t kTexts = 200, kLength = 100, kVocabulary = 50;
  constexpr int32_t kFirst = 3, kMask = 4;  // 0 and 1 stand around a text
  const Masking masking{.mask_token = kMask, .vocabulary_size = kVocabulary, .share = 0.15};
  std::map<std::string, int64_t> counts;
  std::vector<int64_t> by_token(kVocabulary, 0);
  for (int64_t text = 0; text < kTexts; ++text) {
    Sample sample{.tokens = std::vector<int32_t>(kLength, kFirst)};
    sample.labels = sample.tokens;
    sample.tokens.front() = 0;
    sample.labels.front() = nn::kIgnoredLabel;
    mask_tokens(sample, masking,
                make_random_key(7, Purpose::masking, static_cast<uint64_t>(text), 0, 0));
    EXPECT_EQ(sample.tokens.front(), 0) << "a mark was hidden";
    EXPECT_EQ(sample.labels.front(), nn::kIgnoredLabel);
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      const int32_t token = sample.tokens[i];
      if (sample.labels[i] == nn::kIgnoredLabel) {
        ASSERT_EQ(token, kFirst) << "a token was hidden that nobody has to guess";
        continue;
      }
      ASSERT_EQ(sample.labels[i], kFirst);
      ++counts["hidden"];
      ++counts[token == kMask ? "mask" : token == kFirst ? "same" : "other"];
      ++by_token[static_cast<size_t>(token)];
    }
  }
  // Four standard deviations of 19800 draws of 0.15, and of about 2970 of 0.8 and 0.1.
  const auto hidden = static_cast<double>(counts["hidden"]);
  EXPECT_NEAR(hidden / (kTexts * (kLength - 1)), 0.15, 0.0102);
  EXPECT_NEAR(static_cast<double>(counts["mask"]) / hidden, 0.8 + 0.1 / kVocabulary, 0.03);
  EXPECT_NEAR(static_cast<double>(counts["same"]) / hidden, 0.1 + 0.1 / kVocabulary, 0.022);
  EXPECT_NEAR(static_cast<double>(counts["other"]) / hidden, 0.1, 0.022);
  EXPECT_EQ(std::ranges::count(by_token, 0), 0) << "a token of the vocabulary never comes";
}

TEST_F(ExampleDataTest, HiddenTokens_AreTheSameInEveryWorld) {
  constexpr int64_t kTexts = 24, kLength = 16;
  const auto data = make_dataset(
      kTexts,
      [](int64_t index) {
        Sample sample{.tokens = std::vector<int32_t>(kLength, static_cast<int32_t>(index))};
        sample.labels = sample.tokens;
        return sample;
      },
      {.lengths = true,
       .labels = LabelsOf::masked,
       .masking = {.mask_token = 99, .vocabulary_size = 100, .share = 0.5}});
  const auto hidden = [](const nn::Batch& batch) {
    std::vector<int64_t> all = batch["input_ids"].to_vector<int64_t>();
    const std::vector<int64_t> labels = batch["labels"].to_vector<int64_t>();
    EXPECT_EQ(batch.num_targets, std::ranges::count_if(labels, [](int64_t label) {
                return label != nn::kIgnoredLabel;
              }));
    EXPECT_GT(batch.num_targets, 0);
    all.insert(all.end(), labels.begin(), labels.end());
    return all;
  };
  std::map<int64_t, std::vector<int64_t>> alone, evaluated;
  LoaderOptions options{.micro_batch = 2, .seq_len = kLength, .seed = 5, .prefetch_batches = 0};
  Loader loader(*data, options);
  for (int64_t g = 0; g < 24; ++g) alone[g] = hidden(loader.next());
  EXPECT_NE(alone[0], alone[12]) << "the next epoch hides the same tokens";
  loader.restore({.seed = 5, .samples = 2 * 7});
  EXPECT_EQ(hidden(loader.next()), alone[7]) << "a run that goes on draws others";
  const EvaluationSet one(*data, {.batch = 2, .seq_len = kLength});
  for (int64_t j = 0; j < one.num_batches(); ++j) evaluated[j] = hidden(one.batch(j));
  EXPECT_EQ(hidden(one.batch(3)), evaluated[3]) << "the next evaluation hides others";
  for (int rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    options.world = 3;
    Loader of_rank(*data, options);
    for (int64_t g = rank; g < 24; g += 3) EXPECT_EQ(hidden(of_rank.next()), alone[g]) << g;
    const EvaluationSet set(*data, {.batch = 2, .seq_len = kLength, .rank = rank, .world = 3});
    for (int64_t round = 0; round < set.num_rounds(); ++round) {
      EXPECT_EQ(hidden(set.batch(round)), evaluated[set.batch_index(round)]);
    }
  }
}

TEST_F(ExampleDataTest, Cache_IsUsedWhileNothingChanges) {
  const std::string path = folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n");
  const std::string first = make_example_folder(path, &kBytes, settings(), options());
  const auto time = std::filesystem::last_write_time(first);
  EXPECT_EQ(make_example_folder(path, &kBytes, settings(), options()), first);
  EXPECT_EQ(std::filesystem::last_write_time(first), time) << "it was made again";
  EXPECT_EQ(example_folder(path, &kBytes, settings(), options()), first);
  EXPECT_THAT(files::names_in(first), ElementsAre("index.bin", "made.json", "tokens.bin"));
  EXPECT_EQ(files::names_in(folder_ / "cache").size(), 1U) << "something unfinished is left";
}

TEST_F(ExampleDataTest, Cache_IsKeyedByFileTokenizerAndSettings) {
  const std::string path = folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n");
  const auto key = [&](const ExampleSettings& made, const ExampleFileOptions& with) {
    return example_folder(path, &kBytes, made, with);
  };
  std::set<std::string> keys{key(settings(), options())};
  ExampleSettings other = settings(65);
  keys.insert(key(other, options()));
  other = settings();
  other.pattern.between = " ";
  keys.insert(key(other, options()));
  other = settings();
  other.mask = Mask::offsets;
  keys.insert(key(other, options()));
  other = settings();
  other.format = ChatFormat::chatml;
  keys.insert(key(other, options()));
  other = settings();
  other.end_token = false;
  keys.insert(key(other, options()));
  other = settings();
  other.fields.answer = "p";
  keys.insert(key(other, options()));
  for (const LabelsOf labels : {LabelsOf::row, LabelsOf::text}) {
    other = settings();
    other.labels = labels;
    keys.insert(key(other, options()));
  }
  other.classes = {"a", "b"};
  keys.insert(key(other, options()));
  other = settings();
  other.vocabulary_size = 300;
  keys.insert(key(other, options()));
  ExampleFileOptions with = options();
  with.make.skip_bad = 1;
  keys.insert(key(settings(), with));
  // A tokenizer of the same name and size with other merges.
  with = options();
  folder_.write("vocab.json", "{}");
  with.tokenizer_folder = folder_.path();
  keys.insert(key(settings(), with));
  folder_.write("vocab.json", "{ }");
  keys.insert(key(settings(), with));
  EXPECT_EQ(keys.size(), 14U);
  // The file has the same size, but another time.
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_FALSE(keys.contains(key(settings(), options())));
  folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"cd\"}\n");
  EXPECT_FALSE(keys.contains(key(settings(), options())));
}

TEST_F(ExampleDataTest, Cache_BadDataLeaveNothing) {
  const std::string path = folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n{\n");
  EXPECT_THAT(files::message_of<DataError>([&] { make(path, settings()); }),
              HasSubstr("a.jsonl:2:"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(ExampleDataTest, Cache_StoppedWorkLeavesNothing) {
  const std::string path = folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n");
  const std::atomic<bool> stop = true;
  ExampleFileOptions stopped = options();
  stopped.make.stop = &stop;
  EXPECT_EQ(make_example_folder(path, &kBytes, settings(), stopped), "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cache"));
}

TEST_F(ExampleDataTest, Cache_DamageIsNamed) {
  const std::string path = folder_.write("a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n");
  const std::string folder = make_example_folder(path, &kBytes, settings(), options());
  const std::string index = files::read_whole_file(folder + "/index.bin");
  std::filesystem::resize_file(folder + "/index.bin", 8);
  EXPECT_THAT(files::message_of<DataError>([&] { ExampleFile::open(folder, path); }),
              HasSubstr("is damaged"));
  folder_.write(folder.substr(folder_.path().size() + 1) + "/index.bin",
                index.substr(0, 8) + std::string("\x09\0\0\0\0\0\0\0", 8));
  const ExampleFile file = ExampleFile::open(folder, path);
  Sample sample;
  EXPECT_THAT(files::message_of<DataError>([&] { file.append_to(0, sample); }),
              HasSubstr("index.bin: entry 0 is damaged"));
}

TEST_F(ExampleDataTest, Cache_KeepsTheCounts) {
  const std::string path = folder_.write(
      "a.jsonl", "{\"p\": \"ab\", \"a\": \"c\"}\n{\"p\": \"abcdefgh\", \"a\": \"c\"}\n{\n");
  ExampleFileOptions with = options();
  with.make.skip_bad = 1;
  const std::string folder = make_example_folder(path, &kBytes, settings(6), with);
  const ExampleCounts counts = ExampleFile::open(folder, path).counts();
  EXPECT_EQ(counts.records, 3);
  EXPECT_EQ(counts.examples, 1);
  EXPECT_EQ(counts.targets, 2);
  EXPECT_EQ(counts.truncated.count, 1);
  EXPECT_THAT(counts.all_masked.places, ElementsAre(HasSubstr("a.jsonl:2")));
  EXPECT_THAT(counts.damaged.places, ElementsAre(HasSubstr("a.jsonl:3:")));
}

TEST_F(ExampleDataTest, Split_IsAPartitionAndAlwaysTheSame) {
  const auto [rest, part] = numbers(200).split(0.1);
  EXPECT_EQ(rest.num_samples(), 180);
  EXPECT_EQ(part.num_samples(), 20);
  std::vector<std::string> all = texts_of(rest);
  const std::vector<std::string> held_out = texts_of(part);
  all.insert(all.end(), held_out.begin(), held_out.end());
  std::vector<std::string> wanted = texts_of(numbers(200));
  EXPECT_NE(std::vector<std::string>(wanted.end() - 20, wanted.end()), held_out) << "no shuffling";
  std::sort(all.begin(), all.end());
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(all, wanted);
  EXPECT_EQ(texts_of(numbers(200).split(0.1).second), held_out);
  EXPECT_EQ(numbers(2).split(0.01).second.num_samples(), 1);
  EXPECT_THAT(files::message_of<DataError>([&] { numbers(1).split(0.5); }),
              HasSubstr("too few examples"));
}

TEST_F(ExampleDataTest, Packed_HoldsEveryExampleOnceWithItsBorders) {
  const PackedExamples packed(numbers(50), 20);
  EXPECT_TRUE(packed.fields().document_starts);
  std::vector<std::string> found;
  int64_t tokens = 0;
  for (int64_t i = 0; i < packed.num_samples(); ++i) {
    Sample sample;
    packed.read(i, sample);
    ASSERT_LE(sample.tokens.size(), 20U);
    ASSERT_EQ(packed.length(i), static_cast<int64_t>(sample.tokens.size()));
    ASSERT_EQ(sample.document_starts.size(), sample.tokens.size());
    tokens += packed.length(i);
    for (size_t begin = 0; begin < sample.tokens.size();) {
      size_t end = begin;
      const auto start = static_cast<int32_t>(begin);
      while (end < sample.tokens.size() && sample.document_starts[end] == start) ++end;
      ASSERT_GT(end, begin);
      const auto cut = [&](const std::vector<int32_t>& from) {
        return text_of_tokens({from.begin() + start, from.begin() + static_cast<int>(end)});
      };
      found.push_back(cut(sample.tokens) + "|" + cut(sample.labels));
      begin = end;
    }
  }
  EXPECT_EQ(found, texts_of(numbers(50)));
  EXPECT_LT(packed.num_samples(), 50 / 2);
  EXPECT_THROW(PackedExamples(numbers(50), 3), InvalidArgument);
}

// --- batches of unequal lengths

TEST_F(ExampleDataTest, Collate_PadsToAMultipleOfTheLongest) {
  const std::string path = folder_.write(
      "a.jsonl",
      "{\"p\": \"\", \"a\": \"12\"}\n{\"p\": \"\", \"a\": \"123456789\"}\n{\"p\": \"\", \"a\": "
      "\"12345678\"}\n");
  const ExampleData data({make(path, settings())});
  const auto shape_of = [&](std::vector<int64_t> indices, const BatchShape& shape) {
    return collate(data, indices, shape).columns[0].shape.dim(1);
  };
  EXPECT_EQ(shape_of({0}, {.batch_size = 1, .seq_len = 64, .pad_multiple = 8}), 8);
  EXPECT_EQ(shape_of({0, 2}, {.batch_size = 2, .seq_len = 64, .pad_multiple = 8}), 8);
  EXPECT_EQ(shape_of({1, 2}, {.batch_size = 2, .seq_len = 64, .pad_multiple = 8}), 16);
  EXPECT_EQ(shape_of({1, 2}, {.batch_size = 2, .seq_len = 12, .pad_multiple = 8}), 12);
  EXPECT_EQ(shape_of({0}, {.batch_size = 1, .seq_len = 64}), 64);
  EXPECT_EQ(shape_of({}, {.batch_size = 1, .seq_len = 64, .pad_multiple = 8}), 8);
  const HostBatch batch =
      collate(data, std::vector<int64_t>{0}, {.batch_size = 2, .seq_len = 64, .pad_multiple = 4});
  EXPECT_THAT(batch.columns[0].values, ElementsAre('\n', '1', 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch.columns[1].values, ElementsAre('1', '2', -100, -100, -100, -100, -100, -100));
  EXPECT_EQ(batch.num_targets, 2);
}

// The samples of a run's micro-batches, and their lengths.
struct Taken {
  std::map<int64_t, int> times;  // by sample
  int64_t padding = 0;
  std::vector<int64_t> sizes;  // of the micro-batches
};

Taken take(const Dataset& data, const LoaderOptions& options, int64_t micro_batches) {
  Taken taken;
  for (int64_t g = 0; g < micro_batches; ++g) {
    const std::vector<int64_t> samples =
        micro_batch_samples(data, options, g * options.micro_batch);
    int64_t longest = 0;
    for (const int64_t sample : samples) longest = std::max(longest, data.length(sample));
    for (const int64_t sample : samples) {
      ++taken.times[sample];
      taken.padding += longest - data.length(sample);
    }
    taken.sizes.push_back(static_cast<int64_t>(samples.size()));
  }
  return taken;
}

TEST_F(ExampleDataTest, GroupByLength_TakeEverySampleOnceAndPadLittle) {
  const ExampleData data = numbers(4 * 64 * 3);
  LoaderOptions options{.micro_batch = 4, .seq_len = 64, .seed = 3};
  const Taken mixed = take(data, options, 64 * 3);
  options.group_by_length = true;
  const Taken alike = take(data, options, 64 * 3);
  EXPECT_EQ(alike.times.size(), 768U);
  for (const auto& [sample, times] : alike.times) ASSERT_EQ(times, 1) << sample;
  EXPECT_LT(alike.padding, mixed.padding / 5);
  // Micro-batches of one window are not in the order of their lengths.
  std::vector<int64_t> lengths;
  for (int64_t g = 0; g < 64; ++g) {
    lengths.push_back(
        data.length(micro_batch_samples(data, options, g * options.micro_batch).front()));
  }
  EXPECT_FALSE(std::is_sorted(lengths.begin(), lengths.end()));
  EXPECT_EQ(micro_batch_samples(data, options, 280), micro_batch_samples(data, options, 280));
  options.seed = 4;
  EXPECT_NE(take(data, options, 1).times, alike.times);
}

TEST_F(ExampleDataTest, End_LeavesShortAndEmptyBatches) {
  const ExampleData data = numbers(10);
  for (const bool group_by_length : {false, true}) {
    const LoaderOptions options{
        .micro_batch = 4, .seq_len = 64, .group_by_length = group_by_length, .end = 10, .seed = 3};
    const Taken taken = take(data, options, 5);
    EXPECT_EQ(taken.times.size(), 10U);
    EXPECT_THAT(taken.sizes, ElementsAre(4, 4, 2, 0, 0));
  }
}

// This holds also with few records and many epochs, whether batches end with epochs or not.
TEST_F(ExampleDataTest, Epochs_TakeEverySampleOnceAndNoBatchHoldsOneTwice) {
  for (const int64_t count : {12, 13, 48, 50, 301}) {
    const ExampleData data = numbers(count);
    for (const bool group_by_length : {false, true}) {
      SCOPED_TRACE(str(count, " records, grouped: ", group_by_length));
      const LoaderOptions options{
          .micro_batch = 4, .seq_len = 64, .group_by_length = group_by_length, .seed = 3};
      constexpr int64_t kEpochs = 20;
      std::vector<int64_t> order;
      for (int64_t first = 0; first < kEpochs * count; first += 4) {
        const std::vector<int64_t> batch = micro_batch_samples(data, options, first);
        EXPECT_EQ(std::set<int64_t>(batch.begin(), batch.end()).size(), 4U) << "from " << first;
        order.insert(order.end(), batch.begin(), batch.end());
      }
      for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
        const auto begin = order.begin() + epoch * count;
        EXPECT_EQ(std::set<int64_t>(begin, begin + count).size(), static_cast<size_t>(count))
            << "epoch " << epoch;
      }
    }
  }
}

TEST_F(ExampleDataTest, Loader_FewerSamplesThanABatchHasRows) {
  const ExampleData data = numbers(3);
  EXPECT_THROW(Loader(data, {.micro_batch = 4, .seq_len = 64}), DataError);
  Loader loader(data, {.micro_batch = 4, .seq_len = 64, .pad_multiple = 8, .end = 3});
  const nn::Batch batch = loader.next();
  EXPECT_EQ(batch["input_ids"].shape(), (Shape{4, 8}));
  EXPECT_GT(batch.num_targets, 0);
  EXPECT_EQ(loader.next().num_targets, 0);
}

TEST_F(ExampleDataTest, Loader_GoesOnWhereItsStateStands) {
  const ExampleData data = numbers(300);
  const auto options = [](int rank, int world) {
    return LoaderOptions{.micro_batch = 2,
                         .seq_len = 64,
                         .pad_multiple = 8,
                         .group_by_length = true,
                         .seed = 7,
                         .rank = rank,
                         .world = world};
  };
  Loader whole(data, options(0, 1));
  std::vector<std::vector<int64_t>> wanted;
  for (int i = 0; i < 140; ++i) wanted.push_back(whole.next()["input_ids"].to_vector<int64_t>());
  LoaderState state;
  for (int rank = 0; rank < 2; ++rank) {
    Loader half(data, options(rank, 2));
    for (int m = 0; m < 35; ++m) {
      EXPECT_EQ(half.next()["input_ids"].to_vector<int64_t>(), wanted[2 * m + rank]);
    }
    state = half.state();
  }
  Loader rest(data, options(0, 1));
  rest.restore(state);
  for (size_t i = 70; i < 140; ++i) {
    EXPECT_EQ(rest.next()["input_ids"].to_vector<int64_t>(), wanted[i]);
  }
}

}  // namespace example_data_test
}  // namespace zinc::data
