// RUN: distir-opt %s --split-input-file --verify-diagnostics -p apply-sharding | filecheck %s

// No such axis.
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

// No mesh.
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: apply-sharding needs one dist.mesh in the module, got 0

// -----

// 6 columns over 12 devices, of two axes.
dist.mesh @mesh = <["dp" = 3, "tp" = 4]>
func.func @main(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %y = "onnx.Neg"(%x) {dist.rule = #dist.rule<[S1, S2] -> {S1: gather(0), S2: gather(1)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"dp": S2, "tp": S2}>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  func.return %y : tensor<4x6xf32>
}
// CHECK: a value of shape [4, 6] cannot be sharded over {'dp': 3, 'tp': 4}: dim 1 has pieces of [6] blocks, too few for 12 parts

// -----

// No entry.
dist.mesh @mesh = <["tp" = 2]>
func.func @step(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: no function @main in the module; its functions: @step

// -----

// Sums along one axis, maxima along the other.
dist.mesh @mesh = <["dp" = 2, "tp" = 2]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {}], partial = {"dp": sum, "tp": max}>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: a value of shape [4, 6] cannot be sharded over {'dp': 2, 'tp': 2}: partial max and partial sum

// -----

// 6 columns over 8 devices, of an argument.
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

// An argument along an axis that the mesh does not have.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<4x6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"dp"}]>}) -> tensor<4x6xf32> {
  func.return %x : tensor<4x6xf32>
}
// CHECK: on argument 0 of shape [4, 6]: the mesh has no axis "dp"

// -----

// An argument of one dim, cut along a second one.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%x: tensor<6xf32> {dist.sharding = #dist.sharding<@mesh, [{}, {"tp"}]>}) -> tensor<6xf32> {
  func.return %x : tensor<6xf32>
}
// CHECK: on argument 0 of shape [6]: there is no dim 1

// -----

// Which shape a shard would have is not known.
dist.mesh @mesh = <["tp" = 3]>
func.func @main(%x: tensor<4x12xf32>, %shape: tensor<3xi64>) -> tensor<4x3x4xf32> {
  %y = "onnx.Reshape"(%x, %shape) {dist.rule = #dist.rule<[S1, S2], [_] -> {S1: gather(0), S2: gather(1)}, sizes = {shape[0]: S1, shape[1]: S2}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"tp": S2}>} : (tensor<4x12xf32>, tensor<3xi64>) -> tensor<4x3x4xf32>
  func.return %y : tensor<4x3x4xf32>
}
// CHECK: onnx.Reshape: the size operand %shape is no constant: run onnx-fold-shapes first

// -----

// The rule is of a window of three; five rows that make two rows are none.
dist.mesh @mesh = <["a" = 2]>
func.func @main(%x: tensor<1x1x5x4xf32>) -> tensor<1x1x2x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [4 : si64, 3 : si64]}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 2]), _] -> {S1: gather(2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1}>} : (tensor<1x1x5x4xf32>) -> tensor<1x1x2x2xf32>
  func.return %y : tensor<1x1x2x2xf32>
}
// CHECK: #dist.strategy<@mesh, {"a": S1}> on axis "a" of size 2 does not fit the rule or the shapes

// -----

// Two axes cannot both cut the rows.
dist.mesh @mesh = <["a" = 2, "b" = 2]>
func.func @main(%x: tensor<1x1x8x4xf32>) -> tensor<1x1x6x2xf32> {
  %y = "onnx.AveragePool"(%x) <{kernel_shape = [3 : si64, 3 : si64]}> {dist.rule = #dist.rule<[_, _, S1(halo = [0, 2]), _] -> {S1: gather(2)}, found = exact>, dist.strategy = #dist.strategy<@mesh, {"a": S1, "b": S1}>} : (tensor<1x1x8x4xf32>) -> tensor<1x1x6x2xf32>
  func.return %y : tensor<1x1x6x2xf32>
}
// CHECK: dim 2 is cut with a halo, which only one axis can do
