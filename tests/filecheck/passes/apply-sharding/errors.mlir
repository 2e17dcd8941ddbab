// RUN: distir-opt %s --split-input-file --verify-diagnostics -p apply-sharding | filecheck %s

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"pp": S1}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: "onnx.Neg"
// CHECK-NEXT: ^^^
// CHECK-NEXT: strategy for axis "pp", which the mesh does not have

// -----

// 6 columns over 8 devices.
dist.mesh @mesh = <["tp" = 8]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: "onnx.Neg"
// CHECK-NEXT: ^^^
// CHECK-NEXT: #dist.strategy<@mesh, {"tp": S2}> on axis "tp" of size 8 does not fit the rule or the shapes

// -----

// No such factor.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S3}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: #dist.strategy<@mesh, {"tp": S3}> on axis "tp" of size 2 does not fit the rule or the shapes

// -----

// A strategy needs a rule.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.strategy = #dist.strategy<@mesh, {"tp": partial(0)}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: #dist.strategy<@mesh, {"tp": partial(0)}> on axis "tp" of size 2 does not fit the rule or the shapes

// -----

func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: apply-sharding needs one dist.mesh in the module, got 0

// -----

dist.mesh @mesh = <["dp" = 3, "tp" = 4]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"dp": S2, "tp": S2}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: a value of shape [4, 6] cannot be sharded over {'dp': 3, 'tp': 4}: dim 1 has pieces of [6] blocks, too few for 12 parts

// -----

dist.mesh @mesh = <["tp" = 2]>
func.func @step(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: no function @main in the module; its functions: @step

// -----

dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}], partial = {"dp": sum, "tp": max}>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: a value of shape [4, 6] cannot be sharded over {'dp': 2, 'tp': 2}: partial max and partial sum

// -----

dist.mesh @mesh = <["tp" = 8]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: #dist.sharding<@mesh, [{}, {"tp"}]> on argument 0 of shape [4, 6]: dim 1 is too small for axis "tp" of size 8

// -----

// Pieces [2, 2] are not the 6 columns.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp" [2, 2]}]>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: dim 1 has not the extent of its pieces, 4

// -----

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}]>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: on argument 0 of shape [4, 6]: the mesh has no axis "dp"

// -----

dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}) -> tensor<6xf32> {
  func.return %x : tensor<6xf32>
}
// CHECK: on argument 0 of shape [6]: there is no dim 1

// -----

dist.mesh @mesh = <["tp" = 3]>
func.func @main(%x: tensor<4x12xf32>, %shape: tensor<3xi64>) -> tensor<4x3x4xf32> {
  %y = "onnx.Reshape"(%x, %shape) {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: gather(0), S2: gather(1)}, sizes = {shape[0]: S1, shape[1]: S2}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> tensor<4x3x4xf32>
  func.return %y : tensor<4x3x4xf32>
}
// CHECK: onnx.Reshape: the size operand %shape is no constant: run onnx-fold-shapes first
