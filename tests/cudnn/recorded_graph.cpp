#include "tests/cudnn/recorded_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "core/error.h"

namespace zinc::test {
namespace {

using kernels::cuda::CudnnDescriptor;
using kernels::cuda::CudnnFunctions;

// A descriptor as it was set. A link copies what it names, as cuDNN's do.
struct Record {
  cudnnBackendDescriptorType_t type;
  std::map<cudnnBackendAttributeName_t, std::vector<int64_t>> numbers;
  std::map<cudnnBackendAttributeName_t, std::vector<Record>> links;

  int64_t number(cudnnBackendAttributeName_t name) const { return numbers.at(name).at(0); }
  const Record* link(cudnnBackendAttributeName_t name) const {
    const auto found = links.find(name);
    return found == links.end() ? nullptr : &found->second.at(0);
  }
};

template <class T>
std::vector<int64_t> numbers_of(const void* values, int64_t count) {
  const T* all = static_cast<const T*>(values);
  std::vector<int64_t> made;
  for (int64_t i = 0; i < count; ++i) made.push_back(static_cast<int64_t>(all[i]));
  return made;
}

cudnnStatus_t create(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made) {
  auto record = std::make_unique<Record>();
  record->type = type;
  *made = record.release();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnBackendDescriptor_t raw) {
  std::unique_ptr<Record> owned(static_cast<Record*>(raw));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set(cudnnBackendDescriptor_t raw, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  Record& record = *static_cast<Record*>(raw);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* all = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      record.links[name].push_back(*static_cast<const Record*>(all[i]));
    }
  } else if (type == CUDNN_TYPE_INT64) {
    record.numbers[name] = numbers_of<int64_t>(values, count);
  } else if (type == CUDNN_TYPE_BOOLEAN) {
    record.numbers[name] = numbers_of<bool>(values, count);
  } else {  // enumerations
    record.numbers[name] = numbers_of<int32_t>(values, count);
  }
  return CUDNN_STATUS_SUCCESS;
}

using Four = std::array<int64_t, 4>;

struct Tensor {
  Four extents{}, strides{};
  double* data = nullptr;

  double& at(const Four& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < 4; ++d) offset += extents[d] == 1 ? 0 : index[d] * strides[d];
    return data[offset];
  }
  template <class Each>
  void for_each(Each&& each) const {
    Four i{};
    for (i[0] = 0; i[0] < extents[0]; ++i[0]) {
      for (i[1] = 0; i[1] < extents[1]; ++i[1]) {
        for (i[2] = 0; i[2] < extents[2]; ++i[2]) {
          for (i[3] = 0; i[3] < extents[3]; ++i[3]) each(i);
        }
      }
    }
  }
};

double apply(cudnnPointwiseMode_t mode, double x, double b) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
      return x + b;
    case CUDNN_POINTWISE_SUB:
      return x - b;
    case CUDNN_POINTWISE_MUL:
      return x * b;
    case CUDNN_POINTWISE_DIV:
      return x / b;
    case CUDNN_POINTWISE_EXP:
      return std::exp(x);
    case CUDNN_POINTWISE_LOG:
      return std::log(x);
    case CUDNN_POINTWISE_CMP_GE:
      return x >= b;
    case CUDNN_POINTWISE_CMP_GT:
      return x > b;
    case CUDNN_POINTWISE_CMP_LT:
      return x < b;
    case CUDNN_POINTWISE_LOGICAL_AND:
      return x != 0 && b != 0;
    default:
      throw Error(str("an unknown pointwise mode: ", static_cast<int>(mode)));
  }
}

class Computer {
 public:
  explicit Computer(const Memory& memory) : memory_(memory) {}

  void run(const Record& op) {
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return product(op);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(op);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduction(op);
      case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return reshape(op);
      default:
        throw Error(str("an unknown operation: ", static_cast<int>(op.type)));
    }
  }

 private:
  Tensor tensor(const Record* record, double* data = nullptr) {
    Tensor made;
    const auto& extents = record->numbers.at(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto& strides = record->numbers.at(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy_n(extents.begin(), 4, made.extents.begin());
    std::copy_n(strides.begin(), 4, made.strides.begin());
    const int64_t name = record->number(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (!record->numbers.contains(CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
      const auto found = memory_.find(name);
      require(found != memory_.end(), "tensor ", name, " has no place");
      made.data = found->second;
    } else if (data != nullptr) {
      made.data = places_[name] = data;
    } else if (const auto found = places_.find(name); found != places_.end()) {
      made.data = found->second;
    } else {
      const int64_t count = extents[0] * extents[1] * extents[2] * extents[3];
      made.data = places_[name] = kept_.emplace_back(static_cast<size_t>(count), NAN).data();
    }
    return made;
  }

  // A side of a product ends at the length of its batch; what lies behind it is 0.
  void product(const Record& op) {
    const Tensor a = tensor(op.link(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    const Tensor b = tensor(op.link(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    const Tensor c = tensor(op.link(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    const auto end = [&](cudnnBackendAttributeName_t name, int64_t batch, int64_t all) {
      const Record* lengths = op.link(name);
      return lengths == nullptr ? all : static_cast<int64_t>(tensor(lengths).at({batch, 0, 0, 0}));
    };
    c.for_each([&](const Four& i) {
      const auto [batch, head, row, column] = i;
      const int64_t rows =
          end(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, batch, c.extents[2]);
      const int64_t columns =
          end(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, batch, c.extents[3]);
      const int64_t inner =
          end(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, batch, a.extents[3]);
      const int64_t of_a = head * a.extents[1] / c.extents[1];
      const int64_t of_b = head * b.extents[1] / c.extents[1];
      double sum = 0.0;
      for (int64_t k = 0; k < inner && row < rows && column < columns; ++k) {
        sum += a.at({batch, of_a, row, k}) * b.at({batch, of_b, k, column});
      }
      c.at(i) = sum;
    });
  }

  void pointwise(const Record& op) {
    const Record& how = *op.link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const auto mode = static_cast<cudnnPointwiseMode_t>(how.number(CUDNN_ATTR_POINTWISE_MODE));
    const Tensor x = tensor(op.link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC));
    const Tensor y = tensor(op.link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    const Record* second = op.link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    const Tensor b = second == nullptr ? Tensor{} : tensor(second);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
      const auto axis = static_cast<size_t>(how.number(CUDNN_ATTR_POINTWISE_AXIS));
      return y.for_each([&](const Four& i) { y.at(i) = static_cast<double>(i[axis]); });
    }
    if (mode == CUDNN_POINTWISE_BINARY_SELECT) {
      const Tensor mask = tensor(op.link(CUDNN_ATTR_OPERATION_POINTWISE_TDESC));
      return y.for_each([&](const Four& i) { y.at(i) = mask.at(i) != 0 ? x.at(i) : b.at(i); });
    }
    y.for_each(
        [&](const Four& i) { y.at(i) = apply(mode, x.at(i), second == nullptr ? 0.0 : b.at(i)); });
  }

  // Neighbours fall together where y is shorter than x.
  void reduction(const Record& op) {
    const Record& how = *op.link(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool adds = how.number(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD;
    require(adds || how.number(CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX,
            "an unknown reduction");
    const Tensor x = tensor(op.link(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    const Tensor y = tensor(op.link(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    y.for_each([&](const Four& i) { y.at(i) = adds ? 0.0 : -INFINITY; });
    x.for_each([&](const Four& i) {
      Four to{};
      for (size_t d = 0; d < 4; ++d) to[d] = i[d] * y.extents[d] / x.extents[d];
      y.at(to) = adds ? y.at(to) + x.at(i) : std::max(y.at(to), x.at(i));
    });
  }

  // The memory of x by other extents and strides.
  void reshape(const Record& op) {
    const Tensor x = tensor(op.link(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    tensor(op.link(CUDNN_ATTR_OPERATION_RESHAPE_YDESC), x.data);
  }

  const Memory& memory_;
  std::map<int64_t, double*> places_;
  std::vector<std::vector<double>> kept_;
};

}  // namespace

CudnnFunctions recording_functions() {
  CudnnFunctions functions;
  functions.create_descriptor = create;
  functions.destroy_descriptor = destroy;
  functions.set_attribute = set;
  functions.finalize = [](cudnnBackendDescriptor_t) { return CUDNN_STATUS_SUCCESS; };
  return functions;
}

void compute(const CudnnDescriptor& graph, const Memory& memory) {
  Computer computer(memory);
  for (const Record& op :
       static_cast<const Record*>(graph.raw())->links.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    computer.run(op);
  }
}

}  // namespace zinc::test
