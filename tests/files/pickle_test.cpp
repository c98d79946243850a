#include "files/torch/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/files/scratch_folder.h"

namespace zinc::files::torch {
namespace pickle_test {

using namespace std::string_literals;
using testing::EndsWith;
using testing::HasSubstr;

// The opcodes are those of Python's pickletools; protocol 2 goes before, STOP behind.
std::string pickle(const std::string& opcodes) { return "\x80\x02"s + opcodes + "."; }

std::unique_ptr<const Document> parse(const std::string& opcodes, const PickleLimits& limits = {}) {
  return read_pickle(pickle(opcodes), "p", limits);
}

std::string error_of(const std::string& opcodes, const PickleLimits& limits = {}) {
  return message_of<DataError>([&] { parse(opcodes, limits); });
}

std::string text(const std::string& value) {
  return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value;
}

// The bytes that protocol 2 writes for a tensor of `elements` floats in the storage "0" of `stored`
// floats.
std::string tensor(int offset, int extent, int stride, int stored) {
  const auto number = [](int value) {
    return "J"s + std::string(reinterpret_cast<char*>(&value), 4);
  };
  return "ctorch._utils\n_rebuild_tensor_v2\n(("s + text("storage") + "ctorch\nFloatStorage\n" +
         text("0") + text("cpu") + number(stored) + "tQ" + number(offset) + number(extent) +
         "\x85"s + number(stride) + "\x85\x89" + "ccollections\nOrderedDict\n)RtR";
}

TEST(Pickle, Sharing_IsKeptAndCostsNothing) {
  // a = []; a = [a, a] thirty times: 2^30 leaves as a tree.
  std::string opcodes = "]";
  for (char i = 0; i < 30; ++i) opcodes += "q"s + i + "0]" + "h" + i + "ah" + i + "a";
  const auto document = parse(opcodes);
  Value value = document->root();
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(value.size(), 2U);
    value = value.at(size_t{i % 2 == 0});
  }
  EXPECT_EQ(value.size(), 0U);
}

TEST(Pickle, NamesThatAreNotOnTheList_AreRefused) {
  EXPECT_EQ(
      error_of("cposix\nsystem\n"s + text("echo") + "\x85R"),
      "p: byte 2: the pickle names \"posix.system\", which is not among the classes that zinc "
      "reads from weights and checkpoints; nothing of the file was run. Load it with PyTorch "
      "where it is trusted, and save its tensors alone (safetensors.torch.save_file)");
  for (const char* name :
       {"cbuiltins\neval\n", "cbuiltins\ngetattr\n", "c__builtin__\nexec\n", "cos\nsystem\n",
        "ctorch.hub\nload\n", "csubprocess\nPopen\n", "ctorch._utils\n_rebuild_tensor_v2.x\n"}) {
    EXPECT_THAT(error_of(name), HasSubstr("is not among the classes")) << name;
  }
  // The same by STACK_GLOBAL, and names that cannot be printed.
  EXPECT_THAT(error_of("\x8c\x02os\x8c\x06system\x93"), HasSubstr("\"os.system\""));
  EXPECT_THAT(error_of("ca\x1b\nb\xff\n"), HasSubstr("\"a\\x1b.b\\xff\""));
}

TEST(Pickle, KnownNames_AreNotCalledAsSomethingElse) {
  EXPECT_THAT(error_of("ctorch\nFloatStorage\n)R"), EndsWith("which zinc knows as a name only"));
  EXPECT_THAT(error_of("K\x01)R"), EndsWith("the pickle calls an integer: it is damaged"));
  EXPECT_THAT(error_of("ccopyreg\n_reconstructor\n(cbuiltins\nint\ncbuiltins\nobject\nNtR"),
              EndsWith("an instance of builtins.int"));
  EXPECT_THAT(error_of("ccollections\nOrderedDict\n(K\x01K\x02tR"),
              EndsWith("is made from arguments that zinc does not read"));
}

TEST(Pickle, KnownObjects_AreRecordsOfTheirArgumentsAndState) {
  const auto document = parse(
      "ccopyreg\n_reconstructor\n(cargparse\nNamespace\ncbuiltins\nobject\n"
      "NtR}" +
      text("a") + "K\x07sb");
  const Value value = document->root();
  EXPECT_EQ(value.type_name(), "argparse.Namespace");
  EXPECT_EQ(value.state().at("a").as_int64(), 7);
  EXPECT_EQ(parse("cnumpy\ndtype\n" + text("f8") + "\x85\x81")->root().arguments().size(), 1U);
}

TEST(Pickle, ProtocolTwoBytes_AreDecodedFromLatin1) {
  const auto document =
      parse("c_codecs\nencode\n" + text("a\xc2\x80\xc3\xbf") + text("latin1") + "\x86R");
  EXPECT_EQ(document->root().as_bytes(), "a\x80\xff");
  EXPECT_THAT(error_of("c_codecs\nencode\n" + text("\xe2\x82\xac") + text("latin1") + "\x86R"),
              HasSubstr("not latin-1"));
  EXPECT_THAT(error_of("c_codecs\nencode\n" + text("a") + text("rot13") + "\x86R"),
              HasSubstr("\"rot13\""));
}

TEST(Pickle, DamagedText_IsRefusedWithItsPlace) {
  EXPECT_EQ(message_of<DataError>([] { read_pickle("", "p"); }),
            "p: byte 0: not a pickle of protocol 2 or later: save the file with a current "
            "torch.save");
  EXPECT_THAT(message_of<DataError>([] { read_pickle("\x80\x09.", "p"); }),
              HasSubstr("a pickle of protocol 9"));
  EXPECT_THAT(message_of<DataError>([] { read_pickle("\x80\x02N", "p"); }),
              HasSubstr("p: byte 3: the pickle ends within a value"));
  EXPECT_THAT(error_of("N."), EndsWith("bytes follow the end of the pickle"));
  EXPECT_THAT(error_of("NN"), EndsWith("values left over"));
  EXPECT_THAT(error_of("(N"), EndsWith("values left over"));
  EXPECT_THAT(error_of(""), HasSubstr("takes a value that is not there"));
  EXPECT_THAT(error_of("N("), HasSubstr("takes a value that is not there")) << "behind the mark";
  EXPECT_THAT(error_of("t"), HasSubstr("a mark that is not there"));
  EXPECT_THAT(error_of("X\xff\xff\xff\x7fok"),
              HasSubstr("ends within a value of 2147483647 bytes"));
  EXPECT_THAT(error_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("ends within a value"));
  EXPECT_THAT(error_of("h\x05"), HasSubstr("uses value number 5, which it never made"));
  EXPECT_THAT(error_of("}(K\x01u"), HasSubstr("a dict's last key has no value"));
  EXPECT_THAT(error_of("NNa"), HasSubstr("adds elements to None"));
  EXPECT_THAT(error_of("K\x01}b"), HasSubstr("gives attributes to an integer"));
  for (const char opcode : {'i', 'o', 'P', 'I', 'L', 'F', 'S', 'V', 'g', 'p', '\x82', '\x83',
                            '\x84', '\x97', '\x98', '\0', '\xff'}) {
    EXPECT_THAT(error_of(std::string(1, opcode)), HasSubstr("is none of those that torch.save"))
        << static_cast<int>(opcode);
  }
}

TEST(Pickle, WhatGrowsWithoutBound_MeetsALimit) {
  const PickleLimits few{.max_values = 10};
  EXPECT_THAT(error_of("](" + std::string(11, 'N') + "e", few), HasSubstr("more than 10 values"));
  EXPECT_THAT(error_of("N" + std::string(11, '2'), few), HasSubstr("more than 10 values"));
  EXPECT_THAT(error_of("Nr\x0a\0\0\0"s, few), HasSubstr("as number 10, beyond the limit of 10"));
  EXPECT_THAT(error_of("Nr\xff\xff\xff\xff"), HasSubstr("beyond the limit"));
  EXPECT_THAT(error_of(std::string(101, '(') + "N"), HasSubstr("100 containers are open"));
  EXPECT_EQ(error_of("N" + std::string(100, '\x85')), "(no error)");
  EXPECT_THAT(error_of("N" + std::string(101, '\x85')), EndsWith("more than 100 levels deep"));
  EXPECT_THAT(error_of(std::string(5, 'N'), {.max_bytes = 7}), HasSubstr("at most 7 are allowed"));
}

// A deep value that is met again on a shallow way is still deep.
TEST(Pickle, DepthOfSharedValues_IsThatOfTheLongestWay) {
  const std::string deep = "N" + std::string(60, '\x85') + "q\x01";
  EXPECT_EQ(error_of(deep + "h\x01\x86"), "(no error)");
  EXPECT_THAT(error_of("(" + deep + "h\x01" + std::string(50, '\x85') + "t"),
              EndsWith("more than 100 levels deep"));
}

TEST(Pickle, ValuesThatContainThemselves_AreRefused) {
  EXPECT_THAT(error_of("]q\0h\0a"s), EndsWith("a value contains itself"));
  EXPECT_THAT(error_of("}q\0Nh\0s"s), EndsWith("a value contains itself"));
  EXPECT_THAT(error_of("]q\0}q\1Nh\0sa"s), EndsWith("a value contains itself"));
  EXPECT_THAT(error_of("cargparse\nNamespace\n)\x81q\0h\0b"s), EndsWith("a value contains itself"));
}

TEST(Pickle, Tensor_LiesWithinItsStorage) {
  const auto document = parse(tensor(2, 3, 2, 7));
  const TensorRecord& record = document->root().as_tensor();
  EXPECT_EQ(record.storage, "0");
  EXPECT_EQ(record.storage_bytes, 28);
  EXPECT_EQ(record.offset, 2);
  EXPECT_EQ(record.shape, (Shape{3}));
  EXPECT_EQ(record.strides[0], 2);
  EXPECT_THAT(error_of(tensor(2, 3, 2, 6)), HasSubstr("reaches element 6 of a storage of 6"));
  EXPECT_THAT(error_of(tensor(-1, 1, 1, 6)), HasSubstr("begins outside its storage"));
  EXPECT_THAT(error_of(tensor(7, 0, 1, 6)), HasSubstr("begins outside its storage"));
  EXPECT_THAT(error_of(tensor(0, 2, -1, 6)), HasSubstr("stride is negative"));
  EXPECT_THAT(error_of(tensor(0, -2, 1, 6)), HasSubstr("shape is negative"));
  EXPECT_THAT(error_of(tensor(0, 1, 1, -6)), HasSubstr("size is negative"));
}

TEST(Pickle, TensorFromOtherArguments_IsRefused) {
  const std::string call = "ctorch._utils\n_rebuild_tensor_v2\n";
  EXPECT_THAT(error_of(call + ")R"), HasSubstr("needs 4 arguments, not 0"));
  EXPECT_THAT(error_of(call + "(NK\1)NtR"), HasSubstr("expected a storage, found None"));
  EXPECT_THAT(error_of(call + "()QK\1)NtR"), HasSubstr("a storage is described by"));
  EXPECT_THAT(error_of("NQ"), HasSubstr("a storage is not described by a tuple"));
  EXPECT_THAT(error_of("ctorch._utils\n_rebuild_parameter\n)R"), HasSubstr("expected a tensor"));
  EXPECT_THAT(error_of("ctorch._tensor\n_rebuild_from_type_v2\nq\0(h\0NNNtR"s),
              HasSubstr("within itself"));
}

// Every byte of a pickle with all kinds of opcodes changed in turn, and the text cut there.
TEST(Pickle, DamageAtEveryByte_IsAnErrorOrAnotherValue) {
  const std::string whole =
      pickle("}q\0("s + text("t") + tensor(0, 2, 1, 2) + text("l") + "](K\1M\1\2J\1\2\3\4e" +
             text("n") + "\x8a\2\1\2G\0\0\0\0\0\0\0\0\x86"s + text("o") +
             "cargparse\nNamespace\n)\x81}" + text("a") + "\x88sb" + "u");
  ASSERT_NO_THROW(read_pickle(whole, "p"));
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_THROW(read_pickle(whole.substr(0, i), "p"), DataError) << i;
    for (int change = 1; change < 256; ++change) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      try {
        read_pickle(damaged, "p");
      } catch (const DataError&) {
      }
    }
  }
}

}  // namespace pickle_test
}  // namespace zinc::files::torch
