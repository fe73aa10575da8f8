from cassandra.cluster import Cluster
s=Cluster(['127.0.0.1']).connect('sst_h')
p=s.prepare("INSERT INTO wide (k,c,v) VALUES (?,?,?) USING TIMESTAMP ?")
for k in range(3):
    for c in range(3000 if k<2 else 3):
        s.execute(p,(k,c,('v%d-'%k)*20+str(c),1700000000000000+c//1000))
d=s.prepare("DELETE FROM wide USING TIMESTAMP ? WHERE k=? AND c>=? AND c<?")
s.execute(d,(1699999999999999,0,500,2500))
s.execute(d,(1700000000000000,1,100,200))
s.execute(d,(1699999999999999,1,1000,1001))
p=s.prepare("INSERT INTO widestat (k,c1,c2,v) VALUES (?,?,?,?) USING TIMESTAMP 1700000000000000")
s.execute("INSERT INTO widestat (k,s) VALUES (1,'stat') USING TIMESTAMP 1700000000000001")
for a in range(20):
    for c in range(200):
        s.execute(p,(1,'c%02d'%a,c,'x'*40))
s.execute("DELETE FROM widestat USING TIMESTAMP 1699999999999999 WHERE k=1 AND c1 >= 'c03' AND c1 <= 'c09'")
s.execute("DELETE FROM widestat USING TIMESTAMP 1700000000000003 WHERE k=1 AND c1 >= 'c12' AND c1 < 'c14'")
for t in ('snappy','deflate','zstd'):
    q=s.prepare("INSERT INTO %s (k,v) VALUES (?,?) USING TIMESTAMP 1700000000000000"%t)
    for k in range(300): s.execute(q,(k,'value %d '%k*4))
