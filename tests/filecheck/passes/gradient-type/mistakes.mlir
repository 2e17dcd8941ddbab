// RUN: distir-opt %s --verify-diagnostics -p 'gradient-type{type=i32}' | filecheck %s --check-prefix=TYPE
// RUN: distir-opt %s --verify-diagnostics -p gradient-type | filecheck %s --check-prefix=RULES
// RUN: distir-opt %s --verify-diagnostics -p 'gradient-type{batch="z:0"}' | filecheck %s --check-prefix=BATCH
// RUN: distir-opt %s --verify-diagnostics -p 'gradient-type{entry=step}' | filecheck %s --check-prefix=ENTRY

// Another type, a program without rules, and names that it does not have.

// TYPE:  type: expected one of bf16, f16, f32, f64, got 'i32'
// RULES: onnx.MatMul needs the whole of %x [4, 6], which the batch axis of 2 parts holds as parts of dim 0: it has no rule (shardcombine-annotate finds them)
// BATCH: batch: no argument 'z': expected arg0
// ENTRY: no function @step in the module; its functions: @main

func.func @main(%x: tensor<4x6xf32>, %w: tensor<6x6xf32> {dist.role = "parameter"}) -> (tensor<6x6xf32> {dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %yt = "onnx.Transpose"(%y) <{perm = [1, 0]}> : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%yt, %x) : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %new : tensor<6x6xf32>
}
