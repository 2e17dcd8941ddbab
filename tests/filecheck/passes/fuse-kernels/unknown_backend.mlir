// RUN: distir-opt %s --verify-diagnostics -p 'fuse-kernels{backend=fast}' | filecheck %s

// The error lists what there is.
// CHECK: backend: expected eager, foreach, inductor, megatron, got 'fast'
func.func @main() {
  func.return
}
