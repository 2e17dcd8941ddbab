// RUN: distir-opt %s -p 'gradient-type{type=bf16}' | filecheck %s --check-prefixes=CHECK,NARROW
// RUN: distir-opt %s -p 'gradient-type{type=f32}' | filecheck %s --check-prefixes=CHECK,OWN
// RUN: distir-opt %s -p 'gradient-type{type=bf16},pipeline-stages{microbatches=2},microbatch{count=2}' | filecheck %s --check-prefix=LOOP
// RUN: distir-opt %s -p 'dtp-parallelize{dp=2 microbatches=2 gradient-type=bf16}' | filecheck %s --check-prefix=REDUCED
// RUN: distir-opt %s --verify-diagnostics -p 'gradient-type{type=i32}' | filecheck %s --check-prefix=TYPE

// The gradient is what the update takes: it is cast where it is made, added up and reduced in its type, and cast back. The output is no gradient.
// CHECK:       %dw = "onnx.MatMul"
// NARROW-NEXT: %dw_1 = dist.cast %dw {{.*}}partial = [sum: 0 -> 0]{{.*}}dist.addends} : tensor<6x6xf32> -> tensor<6x6xbf16>
// NARROW-NEXT: %dw_2 = dist.cast %dw_1 {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>} : tensor<6x6xbf16> -> tensor<6x6xf32>
// NARROW-NEXT: "onnx.Sub"(%w, %dw_2)
// OWN-NOT:     dist.cast
// OWN:         "onnx.Sub"(%w, %dw)

// LOOP:       func.func private @microbatch({{.*}}%dw: tensor<6x6xbf16>
// LOOP:       func.func private @update_0
// LOOP-NEXT:    dist.cast {{.*}} : tensor<6x6xbf16> -> tensor<6x6xf32>
// LOOP:       func.func private @backward_0
// LOOP:         dist.cast {{.*}} : tensor<6x6xf32> -> tensor<6x6xbf16>
// LOOP-NEXT:    dist.accumulate sum {{.*}} -> tensor<6x6xbf16>

// REDUCED:     dist.allreduce sum {{.*}} -> (tensor<6x6xbf16, #dist.on<0>>, tensor<6x6xbf16, #dist.on<1>>)
// TYPE: type: expected one of bf16, f16, f32, f64, got 'i32'
func.func @main(%x: tensor<4x6xf32> {dist.name = "x", dist.role = "input"}, %w: tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"})
    -> (tensor<4x6xf32> {dist.name = "y", dist.role = "output"}, tensor<6x6xf32> {dist.name = "w", dist.role = "parameter"}) {
  %y = "onnx.MatMul"(%x, %w) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<4x6xf32>, tensor<6x6xf32>) -> tensor<4x6xf32>
  %t = "onnx.Transpose"(%y) <{perm = [1, 0]}> {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(1), S2: gather(0)}, partial = [sum: 0 -> 0], found = exact>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %dw = "onnx.MatMul"(%t, %x) {dist.rule = #dist.rule<[S1, S2], [S2, S3] -> {S1: gather(0), S2: reduce(sum), S3: gather(1)}, partial = [sum: 0 -> 0, sum: 1 -> 0], found = exact>} : (tensor<6x4xf32>, tensor<4x6xf32>) -> tensor<6x6xf32>
  %new = "onnx.Sub"(%w, %dw) {dist.rule = #dist.rule<[S1, S2], [S1, S2] -> {S1: gather(0), S2: gather(1)}, partial = [sum: (0, 1) -> 0], found = exact>} : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xf32>
  func.return %y, %new : tensor<4x6xf32>, tensor<6x6xf32>
}
