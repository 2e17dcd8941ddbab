// RUN: distir-opt %s -p 'project-to-rank{rank=2}' --split-input-file --verify-diagnostics | filecheck %s

func.func @main(%a: tensor<4xf32, #dist.on<1>>) {
  func.return
}
// CHECK: rank 2 is outside the program's devices 0..1

// -----

func.func @step() {
  func.return
}
// CHECK: no function @main in the module; its functions: @step

// -----

builtin.module attributes {dist.devices = 4 : i64, rank.rank = 1 : i64} {
  func.func @main() {
    func.return
  }
}
// CHECK: the module already is the program of rank 1: project the level 3 program
