#include "lib/rpc/door/header_field_counter.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace troupe::rpc {
namespace {

std::string Text(std::string_view text) { return std::string(1, static_cast<char>(text.size())) + std::string(text); }

/// RFC 7541, section 5.1: an integer with all bits of its prefix set.
std::string Rest(uint64_t value) {
  std::string bytes;
  for (; value >= 128; value >>= 7) bytes.push_back(static_cast<char>(value % 128 + 128));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

int64_t FieldsOf(const std::string& block) {
  HeaderFieldCounter counter;
  counter.Add(block);
  EXPECT_FALSE(counter.malformed());
  return counter.num_fields();
}

TEST(HeaderFieldCounterTest, EveryFormOfAFieldIsOne) {
  const std::vector<std::pair<std::string, const char*>> forms = {
      {"\x82", "indexed"},
      {"\xff" + Rest(300), "indexed far away"},
      {"\x40" + Text("a") + Text("b"), "added to the table"},
      {"\x41" + Text("b"), "added, its name indexed"},
      {"\x7f" + Rest(0) + Text("b"), "added, its name indexed far away"},
      {std::string(1, '\0') + Text("a") + Text(""), "not added"},
      {"\x04" + Text("/path"), "not added, its name indexed"},
      {"\x0f" + Rest(20) + Text("b"), "not added, its name indexed far away"},
      {"\x10" + Text("a") + Text("b"), "never added"},
      {"\x1f" + Rest(5) + Text("b"), "never added, its name indexed far away"},
      {"\x20", "the table's size"},
      {"\x3f" + Rest(4065), "the table's size, large"},
      {"\x40" + Text("a") + "\x7f" + Rest(1000) + std::string(1127, '\xbe'), "a long text"},
      {"\x40" + Text("a") + "\xff" + Rest(1000) + std::string(1127, '\xbe'), "a long text by Huffman"}};
  std::string all;
  for (const auto& [form, what] : forms) {
    EXPECT_EQ(FieldsOf(form), 1) << what;
    EXPECT_EQ(FieldsOf(form + "\x82" + form), 3) << what;
    all += form;
  }
  EXPECT_EQ(FieldsOf(all), static_cast<int64_t>(forms.size()));

  // Byte by byte, and a block after one that broke off.
  HeaderFieldCounter counter;
  counter.Add(all.substr(0, all.size() - 1));
  counter.BeginBlock();
  for (const char byte : all) counter.Add(std::string_view(&byte, 1));
  EXPECT_EQ(counter.num_fields(), static_cast<int64_t>(forms.size()));
}

TEST(HeaderFieldCounterTest, AnIntegerWithoutEndIsMalformed) {
  HeaderFieldCounter counter;
  counter.Add("\xff\x80\x80\x80\x80");
  counter.Add(std::string_view("\0\x82", 2));
  EXPECT_FALSE(counter.malformed()) << "five bytes may follow the first one";
  EXPECT_EQ(counter.num_fields(), 2);
  counter.BeginBlock();
  counter.Add("\xff\x80\x80\x80\x80\x80");
  EXPECT_FALSE(counter.malformed());
  counter.Add(std::string_view("\0\x82", 2));
  EXPECT_TRUE(counter.malformed());
  counter.BeginBlock();
  EXPECT_FALSE(counter.malformed());
}

}  // namespace
}  // namespace troupe::rpc
