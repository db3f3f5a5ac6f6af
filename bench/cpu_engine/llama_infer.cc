// SPDX-License-Identifier: Apache-2.0
// The same measurement as stator_infer.cc with llama.cpp's library; race.py compiles it against the
// headers of the same version:
//   llama_infer MODEL.gguf THREADS prefill TOKENS | decode SEQUENCES | ids PROMPTS (a number, or a file of token ids)
//   llama_infer MODEL.gguf THREADS quantize FILE_TYPE OUT.gguf
// LLAMA_LIBRARIES names the folder of its backends.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

constexpr int kContext = 128;
constexpr int kDecoded = 32;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void run(llama_context* context, int sequences, int start, int count, bool all) {
  llama_batch batch = llama_batch_init(sequences * count, 0, 1);
  batch.n_tokens = 0;
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < count; ++i) {
      const int k = batch.n_tokens++;
      batch.token[k] = (s * 131 + (start + i) * 17) % 16000;
      batch.pos[k] = start + i;
      batch.n_seq_id[k] = 1;
      batch.seq_id[k][0] = s;
      batch.logits[k] = all || i == count - 1;
    }
  }
  if (llama_decode(context, batch) != 0) {
    std::exit(3);
  }
  llama_synchronize(context);
  llama_batch_free(batch);
}

/// Eight greedy tokens behind each of `prompts` texts of 24.
std::vector<std::vector<llama_token>> read_prompts(const char* source) {
  std::vector<std::vector<llama_token>> out;
  if (const int made = std::atoi(source); made > 0) {
    for (int prompt = 0; prompt < made; ++prompt) {
      out.emplace_back();
      for (int i = 0; i < 24; ++i) {
        out.back().push_back((prompt * 1009 + i * i * 37 + i * 17) % 16000);
      }
    }
    return out;
  }
  std::ifstream file(source);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    out.emplace_back();
    for (llama_token token = 0; words >> token;) {
      out.back().push_back(token);
    }
  }
  return out;
}

void print_ids(llama_model* model, llama_context* context, const char* source) {
  const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
  for (std::vector<llama_token> tokens : read_prompts(source)) {
    llama_memory_clear(llama_get_memory(context), true);
    const int length = static_cast<int>(tokens.size());
    for (int done = 0, count = length; count < length + 8; done = count, ++count) {
      llama_batch batch = llama_batch_get_one(tokens.data() + done, count - done);
      if (llama_decode(context, batch) != 0) {
        std::exit(3);
      }
      const float* logits = llama_get_logits_ith(context, -1);
      tokens.push_back(
          static_cast<llama_token>(std::max_element(logits, logits + vocabulary) - logits));
      std::printf(count == length ? "%d" : " %d", tokens.back());
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all_from_path(std::getenv("LLAMA_LIBRARIES"));
  llama_backend_init();
  if (argc > 5 && std::strcmp(argv[3], "quantize") == 0) {
    auto how = llama_model_quantize_default_params();
    how.ftype = static_cast<llama_ftype>(std::atoi(argv[4]));
    how.nthread = std::atoi(argv[2]);
    how.pure = true;
    return static_cast<int>(llama_model_quantize(argv[1], argv[5], &how));
  }
  auto* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr || argc < 5) {
    return 1;
  }
  auto parameters = llama_context_default_params();
  parameters.n_ctx = 32768;
  parameters.n_batch = 4096;
  parameters.n_ubatch = 512;
  parameters.n_threads = parameters.n_threads_batch = std::atoi(argv[2]);
  parameters.n_seq_max = 32;
  parameters.kv_unified = true;
  const bool ids = argc > 4 && std::strcmp(argv[3], "ids") == 0;
  if (ids) {
    parameters.type_k = parameters.type_v = GGML_TYPE_F32;
    parameters.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  }
  auto* context = llama_init_from_model(model, parameters);
  const int n = std::atoi(argv[4]);
  if (ids) {
    print_ids(model, context, argv[4]);
    return 0;
  }
  const bool prefill = std::strcmp(argv[3], "prefill") == 0;
  run(context, 1, 0, 64, false);
  llama_memory_clear(llama_get_memory(context), true);
  if (prefill) {
    const double begin = now();
    run(context, 1, 0, n, false);
    std::printf("%.2f tok/s\n", n / (now() - begin));
    return 0;
  }
  run(context, n, 0, kContext, false);
  const double begin = now();
  for (int i = 0; i < kDecoded; ++i) {
    run(context, n, kContext + i, 1, true);
  }
  std::printf("%.2f tok/s\n", n * kDecoded / (now() - begin));
  return 0;
}
