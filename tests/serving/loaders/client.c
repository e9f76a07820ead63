/* Run SavedModels through TensorFlow's C API, without Python and Keras.

   client [lib FILE]... MODEL...
   MODEL: model FOLDER REQUEST...
   REQUEST: ask [in TENSOR string|int32 DIMS VALUE...]... [out TENSOR]...

   TENSOR is "operation:index", DIMS is for example "2x3", and a string is a dot followed by its bytes
   in hexadecimal. Each output is printed on two lines: its name, the number of its TF_DataType and
   its dimensions; then its values. Requests run in order, and all requests to one model share a
   session. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"
#include "tensorflow/c/tf_tstring.h"

enum { MOST_TENSORS = 16, MOST_DIMS = 8 };

static TF_Status *status;

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(const char *what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

static TF_Output find(TF_Graph *graph, const char *tensor) {
  char name[1024];
  const char *colon = strrchr(tensor, ':');
  if (colon == NULL || colon - tensor >= (long)sizeof name) fail(tensor, "is not the name of a tensor");
  memcpy(name, tensor, colon - tensor);
  name[colon - tensor] = '\0';
  TF_Output output = {TF_GraphOperationByName(graph, name), atoi(colon + 1)};
  if (output.oper == NULL) fail(tensor, "is not in the graph");
  return output;
}

static void read_string(const char *digits, TF_TString *string) {
  size_t size = strlen(digits) / 2;
  char *bytes = malloc(size + 1);
  for (size_t i = 0; i < size; i++) {
    unsigned byte = 0;
    sscanf(digits + 2 * i, "%2x", &byte);
    bytes[i] = (char)byte;
  }
  TF_StringInit(string);
  TF_StringCopy(string, bytes, size);
  free(bytes);
}

/* Make a tensor from the words at *argument and advance *argument past them. */
static TF_Tensor *read_tensor(char ***argument, char **end) {
  if (end - *argument < 2) fail("in", "expected a type and dimensions");
  int is_string = strcmp((*argument)[0], "string") == 0;
  int64_t dims[MOST_DIMS], size = 1;
  int rank = 0;
  for (char *dim = strtok((*argument)[1], "x"); dim != NULL; dim = strtok(NULL, "x")) {
    if (rank == MOST_DIMS) fail("in", "too many dimensions");
    dims[rank] = atoll(dim);
    size *= dims[rank++];
  }
  *argument += 2;
  if (end - *argument < size) fail("in", "expected more values");
  size_t width = is_string ? sizeof(TF_TString) : sizeof(int32_t);
  TF_Tensor *tensor = TF_AllocateTensor(is_string ? TF_STRING : TF_INT32, dims, rank, size * width);
  for (int64_t i = 0; i < size; i++) {
    const char *value = *(*argument)++;
    if (is_string) {
      read_string(value + 1, (TF_TString *)TF_TensorData(tensor) + i);
    } else {
      ((int32_t *)TF_TensorData(tensor))[i] = atoi(value);
    }
  }
  return tensor;
}

static void print_value(const TF_Tensor *tensor, int64_t i) {
  const void *data = TF_TensorData(tensor);
  switch (TF_TensorType(tensor)) {
    case TF_FLOAT:
      printf("%.9g ", ((const float *)data)[i]);
      break;
    case TF_INT32:
      printf("%d ", ((const int32_t *)data)[i]);
      break;
    case TF_BOOL:
      printf("%d ", ((const unsigned char *)data)[i]);
      break;
    case TF_STRING: {
      const TF_TString *string = (const TF_TString *)data + i;
      const char *bytes = TF_StringGetDataPointer(string);
      printf(".");
      for (size_t j = 0; j < TF_StringGetSize(string); j++) printf("%02x", (unsigned char)bytes[j]);
      printf(" ");
      break;
    }
    default:
      fail("out", "a type that this program does not print");
  }
}

static void print_tensor(const char *name, const TF_Tensor *tensor) {
  int64_t size = 1;
  printf("%s %d", name, TF_TensorType(tensor));
  for (int i = 0; i < TF_NumDims(tensor); i++) {
    printf(" %lld", (long long)TF_Dim(tensor, i));
    size *= TF_Dim(tensor, i);
  }
  printf("\n");
  for (int64_t i = 0; i < size; i++) print_value(tensor, i);
  printf("\n");
}

/* Run the request at `argument` and return the start of the next one. */
static char **answer(TF_Session *session, TF_Graph *graph, char **argument, char **end) {
  TF_Output inputs[MOST_TENSORS] = {{0}}, outputs[MOST_TENSORS] = {{0}};
  TF_Tensor *fed[MOST_TENSORS] = {0}, *fetched[MOST_TENSORS] = {0};
  const char *names[MOST_TENSORS];
  int num_inputs = 0, num_outputs = 0;
  while (argument < end && strcmp(*argument, "ask") != 0 && strcmp(*argument, "model") != 0) {
    if (end - argument < 2) fail(*argument, "expected a tensor");
    const char *word = argument[0], *tensor = argument[1];
    argument += 2;
    if (strcmp(word, "in") == 0 && num_inputs < MOST_TENSORS) {
      inputs[num_inputs] = find(graph, tensor);
      fed[num_inputs++] = read_tensor(&argument, end);
    } else if (strcmp(word, "out") == 0 && num_outputs < MOST_TENSORS) {
      names[num_outputs] = tensor;
      outputs[num_outputs++] = find(graph, tensor);
    } else {
      fail(word, "not understood");
    }
  }
  TF_SessionRun(session, NULL, inputs, fed, num_inputs, outputs, fetched, num_outputs, NULL, 0,
                NULL, status);
  check("the request");
  for (int i = 0; i < num_outputs; i++) {
    print_tensor(names[i], fetched[i]);
    TF_DeleteTensor(fetched[i]);
  }
  for (int i = 0; i < num_inputs; i++) TF_DeleteTensor(fed[i]);
  return argument;
}

/* Run the requests to the model at `argument` and return the start of the next model. */
static char **answer_all(char **argument, char **end) {
  const char *folder = *argument++, *tags[] = {"serve"};
  TF_Graph *graph = TF_NewGraph();
  TF_SessionOptions *options = TF_NewSessionOptions();
  TF_Session *session =
      TF_LoadSessionFromSavedModel(options, NULL, folder, tags, 1, graph, NULL, status);
  check(folder);
  while (argument < end && strcmp(*argument, "ask") == 0) {
    argument = answer(session, graph, argument + 1, end);
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  return argument;
}

int main(int argc, char **argv) {
  char **argument = argv + 1, **end = argv + argc;
  status = TF_NewStatus();
  for (; end - argument >= 2 && strcmp(argument[0], "lib") == 0; argument += 2) {
    TF_LoadLibrary(argument[1], status);
    check(argument[1]);
  }
  while (argument < end) {
    if (end - argument < 2 || strcmp(*argument, "model") != 0) fail(*argument, "not understood");
    argument = answer_all(argument + 1, end);
  }
  TF_DeleteStatus(status);
  return 0;
}
