/* The templates that have names. */
#include "core/instruct/instruct.h"

#include <string.h>

/* The LoRA example for HyperPod joins its sections by a blank line, that of NxD by a newline. */
#define DOLLY                                                                                      \
    "prompt:\n"                                                                                    \
    "  - \"### Instruction\\n{instruction}\"\n"                                                    \
    "  - \"### Context\\n{context?}\"\n"                                                           \
    "  - \"### Answer\\n\"\n"                                                                      \
    "answer: \"{response}\"\n"

/* https://github.com/tatsu-lab/stanford_alpaca, train.py */
#define ALPACA                                                                                     \
    "prompt:\n"                                                                                    \
    "  - \"{if input}Below is an instruction that describes a task, paired with an input that "    \
    "provides further context. Write a response that appropriately completes the request.\"\n"     \
    "  - \"{unless input}Below is an instruction that describes a task. Write a response that "    \
    "appropriately completes the request.\"\n"                                                     \
    "  - \"### Instruction:\\n{instruction}\"\n"                                                   \
    "  - \"### Input:\\n{input?}\"\n"                                                              \
    "  - \"### Response:\"\n"                                                                      \
    "answer: \"{output}\"\n"

/* https://github.com/meta-llama/llama, llama/generation.py, chat_completion */
#define LLAMA2                                                                                     \
    "chat:\n"                                                                                      \
    "  trim: true\n"                                                                               \
    "  system: \"<<SYS>>\\n{content}\\n<</SYS>>\\n\\n\"\n"                                         \
    "  user: \"{bos}[INST] {system}{content} [/INST]\"\n"                                          \
    "answer: \" {content} {eos}\"\n"

/* https://github.com/meta-llama/llama3, llama/tokenizer.py, ChatFormat */
#define LLAMA3                                                                                     \
    "specials: [\"<|start_header_id|>\", \"<|end_header_id|>\", \"<|eot_id|>\"]\n"                 \
    "chat:\n"                                                                                      \
    "  trim: true\n"                                                                               \
    "  begin: \"{bos}\"\n"                                                                         \
    "  system: \"<|start_header_id|>system<|end_header_id|>\\n\\n{content}<|eot_id|>\"\n"          \
    "  user: \"<|start_header_id|>user<|end_header_id|>\\n\\n{content}<|eot_id|>"                  \
    "<|start_header_id|>assistant<|end_header_id|>\\n\\n\"\n"                                      \
    "answer: \"{content}<|eot_id|>\"\n"

#define COMPLETION "prompt: [\"{prompt?}\"]\nanswer: \"{completion}\"\n"

const char *const tern_instruct_names[] = {"dolly",       "dolly-lines", "alpaca", "completion",
                                           "llama2-chat", "llama3-chat", NULL};
static const char *const texts[] = {DOLLY, DOLLY "join: \"\\n\"\n", ALPACA, COMPLETION, LLAMA2,
                                    LLAMA3};

const char *tern_instruct_text(const char *name)
{
    for (size_t i = 0; tern_instruct_names[i]; i++)
        if (strcmp(name, tern_instruct_names[i]) == 0)
            return texts[i];
    return NULL;
}
