// zinc_bench_plain_allreduce: MPI_Allreduce of f32 alone, for comparison with zinc_bench_comm.
//   mpirun --bind-to none -np 2 zinc_bench_plain_allreduce [min bytes] [max bytes] [seconds]
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void check(int code) {
  if (code != MPI_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1);
}

double median_time(std::vector<float>& data, double seconds) {
  std::vector<double> times;
  const int count = static_cast<int>(data.size());
  int go_on = 1;
  const double begin = MPI_Wtime();
  while (go_on != 0) {
    check(MPI_Barrier(MPI_COMM_WORLD));
    const double started = MPI_Wtime();
    check(MPI_Allreduce(MPI_IN_PLACE, data.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    times.push_back(MPI_Wtime() - started);
    go_on = times.size() < 6 || (MPI_Wtime() - begin < seconds && times.size() < 10'000) ? 1 : 0;
    check(MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  check(MPI_Init(&argc, &argv));
  int rank = 0;
  int size = 1;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  check(MPI_Comm_size(MPI_COMM_WORLD, &size));
  const long long min_bytes = argc > 1 ? std::atoll(argv[1]) : 1024;
  const long long max_bytes = argc > 2 ? std::atoll(argv[2]) : 64 << 20;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 0.3;
  if (rank == 0)
    std::printf("%15s %12s %12s %12s\n", "bytes", "median us", "algbw GB/s", "busbw GB/s");
  for (long long bytes = min_bytes; bytes <= max_bytes; bytes *= 4) {
    std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 0.0f);
    const double time = median_time(data, seconds);
    const double algorithm = static_cast<double>(bytes) / time * 1e-9;
    if (rank == 0) {
      std::printf("%15lld %12.1f %12.3f %12.3f\n", bytes, time * 1e6, algorithm,
                  algorithm * 2 * (size - 1) / size);
    }
  }
  check(MPI_Finalize());
  return 0;
}
