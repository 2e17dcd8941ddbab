// RUN: distir-opt %s --split-input-file -p shardcombine-annotate | filecheck %s --check-prefix=RULE
// RUN: distir-opt %s --split-input-file -p shardcombine-annotate,apply-sharding | filecheck %s

// Rows of a table by index, the table cut by rows: each device looks up the indices that it has, zero for the others.
dist.mesh @mesh = <["tp" = 2]>
func.func @main(%t: tensor<60x8xf32> {dist.name = "t"}, %i: tensor<1x6xi64> {dist.name = "i"})
    -> (tensor<1x6x8xf32> {dist.name = "y", dist.sharding = #dist.sharding<@mesh, [{}, {}, {}]>}) {
  %y = "onnx.Gather"(%t, %i) <{axis = 0 : si64}> {dist.strategy = #dist.strategy<@mesh, {"tp": S3}>}
      : (tensor<60x8xf32>, tensor<1x6xi64>) -> tensor<1x6x8xf32>
  func.return %y : tensor<1x6x8xf32>
}

// RULE: #dist.rule<[S3, S1], [_, S2] -> {S1: gather(2), S2: gather(1), S3: reduce(sum)}, partial = [sum: 0 -> 0, max: 0 -> 0, min: 0 -> 0], offset = S3, found = exact>

// CHECK:      [[V0:%.*]] = "dist.local_index"(%i) <{start = 0 : i64, stop = 30 : i64, extent = 60 : i64}>
// CHECK-NEXT: [[V1:%.*]] = "onnx.Gather"(%t, [[V0]])
// CHECK-NEXT: [[V2:%.*]] = "dist.local_index"(%i_1) <{start = 30 : i64, stop = 60 : i64, extent = 60 : i64}>
// CHECK-NEXT: [[V3:%.*]] = "onnx.Gather"(%t_1, [[V2]])
// CHECK-NEXT: [[Y:%.*]] = "dist.inside"([[V1]], %i) <{start = 0 : i64, stop = 30 : i64, extent = 60 : i64, dims = array<i64: -1, 1>}>
// CHECK-NEXT: [[Y_1:%.*]] = "dist.inside"([[V3]], %i_1) <{start = 30 : i64, stop = 60 : i64, extent = 60 : i64, dims = array<i64: -1, 1>}>
// CHECK-NEXT: dist.allreduce sum [[Y]], [[Y_1]]
